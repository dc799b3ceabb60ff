// RMSNorm and its relatives, one row at a time. Means and sums in f32, in the fixed order of lanes.h.
// `out` may be the same memory as `x`. Cannot fail.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/rounding.h"

namespace trefoil {

// out = w * r(x / sqrt(mean(x^2) + eps)), rounded again: both roundings r() as `rounding` says (the release casts to
// bf16 before the weight and after it). x, weight, out: [n].
void rms_norm(std::span<const float> x, std::span<const float> weight, float eps, Rounding rounding,
              std::span<float> out) noexcept;

// KDA's output norm: out = w * x / sqrt(mean(x^2) + eps) * sigmoid(gate), rounded once. x, weight, gate, out: [n].
void gated_rms_norm(std::span<const float> x, std::span<const float> weight, std::span<const float> gate, float eps,
                    Rounding rounding, std::span<float> out) noexcept;

// out = x / sqrt(sum x^2 + 1e-6) * scale. The epsilon is added to the sum, inside the root. Never rounded.
void l2_normalize(std::span<const float> x, float scale, std::span<float> out) noexcept;

}  // namespace trefoil
