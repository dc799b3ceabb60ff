// Softmax of one row, in place: p[i] = exp(s[i] - max s) / sum_j exp(s[j] - max s), the sum in the order of lanes.h,
// then rounded. The row is not empty. A NaN anywhere makes the whole row NaN.
#pragma once

#include <span>

#include "kernels/rounding.h"

namespace trefoil {

void softmax(std::span<float> row, Rounding rounding) noexcept;

}  // namespace trefoil
