#include "kernels/norm.h"

#include <cmath>

#include "base/vectorize.h"
#include "kernels/elementary.h"
#include "kernels/lanes.h"

namespace trefoil {
namespace {

TREFOIL_VECTORIZE float inverse_rms(std::span<const float> x, float eps) {
  const int64_t n = static_cast<int64_t>(x.size());
  return 1.0f / std::sqrt(lane_sum_of_squares(x.data(), n) / static_cast<float>(n) + eps);
}

}  // namespace

TREFOIL_VECTORIZE void rms_norm(std::span<const float> x, std::span<const float> weight, float eps, Rounding rounding,
                                std::span<float> out) noexcept {
  const float inverse = inverse_rms(x, eps);
  for (size_t i = 0; i < x.size(); ++i) out[i] = rounded(weight[i] * rounded(x[i] * inverse, rounding), rounding);
}

TREFOIL_VECTORIZE void gated_rms_norm(std::span<const float> x, std::span<const float> weight,
                                      std::span<const float> gate, float eps, Rounding rounding,
                                      std::span<float> out) noexcept {
  const float inverse = inverse_rms(x, eps);
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = rounded(weight[i] * x[i] * inverse * sigmoid_f32(gate[i]), rounding);
  }
}

TREFOIL_VECTORIZE void l2_normalize(std::span<const float> x, float scale, std::span<float> out) noexcept {
  constexpr float kEps = 1e-6f;
  const float length = std::sqrt(lane_sum_of_squares(x.data(), static_cast<int64_t>(x.size())) + kEps);
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] / length * scale;
}

}  // namespace trefoil
