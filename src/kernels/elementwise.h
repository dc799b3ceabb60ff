// Functions of one element at a time over whole rows. `out` may be the same memory as an input. Cannot fail.
#pragma once

#include <span>

#include "kernels/rounding.h"

namespace trefoil {

// out = r(a + b).
void add(std::span<const float> a, std::span<const float> b, Rounding rounding, std::span<float> out) noexcept;

// out += scale * x, a multiply and an add, each rounded to f32.
void add_scaled(float scale, std::span<const float> x, std::span<float> out) noexcept;

// MLA's output gate: out = r(x * r(sigmoid(gate))).
void multiply_sigmoid(std::span<const float> x, std::span<const float> gate, Rounding rounding,
                      std::span<float> out) noexcept;

// SiTU, the tanh-bounded gated unit of every MLP and expert:
//   out = r(beta tanh(gate / beta) * sigmoid(gate) * linear_beta tanh(up / linear_beta))
// computed in double, rounded to f32 once, then as `rounding` says. K3: beta 4, linear_beta 25.
struct Situ {
  double beta = 0;
  double linear_beta = 0;
};
void situ(const Situ& unit, std::span<const float> gate, std::span<const float> up, Rounding rounding,
          std::span<float> out) noexcept;

}  // namespace trefoil
