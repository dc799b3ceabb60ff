#include "kernels/attn_res.h"

#include <cmath>

#include "base/vectorize.h"
#include "kernels/lanes.h"
#include "kernels/softmax.h"

namespace trefoil {

TREFOIL_VECTORIZE void attn_res_mix(std::span<const float* const> candidates, std::span<const float> wp, float eps,
                                    Rounding rounding, std::span<float> scores, std::span<float> out) noexcept {
  const int64_t hidden = static_cast<int64_t>(out.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const float* v = candidates[i];
    const float inverse = 1.0f / std::sqrt(lane_sum_of_squares(v, hidden) / static_cast<float>(hidden) + eps);
    const float* p = wp.data();
    scores[i] = lane_sum(hidden, [=](int64_t d) { return v[d] * inverse * p[d]; });
  }
  softmax(scores, Rounding::kNone);
  // One element at a time, so that writing it cannot disturb a candidate still to be read.
  for (int64_t d = 0; d < hidden; ++d) {
    float sum = 0;
    for (size_t i = 0; i < candidates.size(); ++i) sum += scores[i] * candidates[i][d];
    out[static_cast<size_t>(d)] = rounded(sum, rounding);
  }
}

}  // namespace trefoil
