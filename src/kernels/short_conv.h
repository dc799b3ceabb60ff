// The causal depthwise convolution before KDA, for one token, with SiLU.
//   out[c] = r(SiLU(sum_i weight[i, c] * taps[i][c])),   i ascending = oldest first; the last tap is the token itself
//
// taps   : `kernel` pointers to rows of [channels] raw projections (before convolution and SiLU)
// weight : f32 [kernel, channels], the transpose of what is stored
// Sums in f32, ascending i. `out` must not overlap the taps. Cannot fail.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/rounding.h"

namespace trefoil {

void short_conv(std::span<const float* const> taps, std::span<const float> weight, Rounding rounding,
                std::span<float> out) noexcept;

}  // namespace trefoil
