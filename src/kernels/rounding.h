// Where a result is rounded to bf16. Kernels compute in f32 and round exactly the values their header says.
#pragma once

#include <span>

#include "tensor/bf16.h"

namespace trefoil {

enum class Rounding { kNone, kBf16 };

inline float rounded(float value, Rounding rounding) {
  return rounding == Rounding::kBf16 ? round_to_bf16(value) : value;
}

inline void round_in_place(std::span<float> values, Rounding rounding) {
  if (rounding == Rounding::kNone) return;
  for (float& value : values) value = round_to_bf16(value);
}

}  // namespace trefoil
