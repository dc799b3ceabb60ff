// The mix of Attention Residuals, for one token: a softmax over stored block sums and the running sum.
//   s_i = sum_d v_i[d] * inv_i * wp[d],  inv_i = 1 / sqrt(mean(v_i^2) + eps);  a = softmax(s);  out = r(sum_i a_i v_i)
//
// candidates : pointers to rows of [hidden], the stacked blocks in order, the running sum last; at least one
// wp         : norm weight times projection, f32 [hidden] (an f32 product of two stored vectors)
// The raw candidates are mixed, not the normalised ones. No scaling of the scores. All sums in f32 and in candidate
// order. `out` may be the same memory as a candidate. Cannot fail.
#pragma once

#include <span>

#include "kernels/rounding.h"

namespace trefoil {

// `scores` is scratch of candidates.size() floats and holds the weights a_i afterwards.
void attn_res_mix(std::span<const float* const> candidates, std::span<const float> wp, float eps, Rounding rounding,
                  std::span<float> scores, std::span<float> out) noexcept;

}  // namespace trefoil
