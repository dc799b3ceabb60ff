#include "kernels/elementwise.h"

#include "base/vectorize.h"
#include "kernels/elementary.h"

namespace trefoil {

TREFOIL_VECTORIZE void add(std::span<const float> a, std::span<const float> b, Rounding rounding,
                           std::span<float> out) noexcept {
  for (size_t i = 0; i < out.size(); ++i) out[i] = rounded(a[i] + b[i], rounding);
}

TREFOIL_VECTORIZE void add_scaled(float scale, std::span<const float> x, std::span<float> out) noexcept {
  for (size_t i = 0; i < out.size(); ++i) out[i] += scale * x[i];
}

TREFOIL_VECTORIZE void multiply_sigmoid(std::span<const float> x, std::span<const float> gate, Rounding rounding,
                                        std::span<float> out) noexcept {
  for (size_t i = 0; i < out.size(); ++i) out[i] = rounded(x[i] * rounded(sigmoid_f32(gate[i]), rounding), rounding);
}

TREFOIL_VECTORIZE void situ(const Situ& unit, std::span<const float> gate, std::span<const float> up, Rounding rounding,
                            std::span<float> out) noexcept {
  for (size_t i = 0; i < out.size(); ++i) {
    const double g = gate[i];
    const double bounded_gate = unit.beta * tanh_core(g / unit.beta) * sigmoid_core(g);
    const double bounded_up = unit.linear_beta * tanh_core(up[i] / unit.linear_beta);
    out[i] = rounded(static_cast<float>(bounded_gate * bounded_up), rounding);
  }
}

}  // namespace trefoil
