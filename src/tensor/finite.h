// Looks for infinities and NaNs in raw tensor bytes. A weight that is not finite makes every output NaN.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "tensor/dtype.h"

namespace trefoil {

// Whether the type has infinities or NaNs: every floating one.
bool is_floating(DType dtype);

// Index of the first element that is infinite or NaN; nothing when all are finite or `dtype` has no such values
// (integers, booleans). `data` holds whole elements, at any alignment.
std::optional<int64_t> first_non_finite(DType dtype, Bytes data);

}  // namespace trefoil
