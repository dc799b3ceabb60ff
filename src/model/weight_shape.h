// The shape check every WeightSource makes.
#pragma once

#include <string_view>

#include "tensor/tensor_view.h"

namespace trefoil {

// Error(kCorrupt) "name: shape [256, 64], expected [512, 64]" unless they agree; kAnySize in `expected` accepts any
// size.
void require_shape(std::string_view name, const Shape& found, const Shape& expected);

}  // namespace trefoil
