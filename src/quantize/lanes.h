// The solver's unit of work: the same element of kLanes different rows side by side, so that the recurrences over
// columns, which cannot be parallelised, vectorise over rows. Weights, codes and errors of a panel of rows are stored
// transposed, [cols, panel_rows], panel_rows a multiple of kLanes (rows added as padding are zero).
//
// Everything here is elementwise and unfused, so the result does not depend on the instruction set.
#pragma once

#include <bit>
#include <cstdint>

namespace trefoil::lanes {

constexpr int kLanes = 16;

// bf16(value) back in f32; nearest even, for finite values (tensor/bf16.h without the NaN branch, which would not
// vectorise).
inline float to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
}

// Nearest integer, ties to even, for |value| < 2^22: adding 1.5 * 2^23 leaves no fraction bits.
inline float round_half_even(float value) {
  constexpr float kNoFraction = 12582912.0f;
  return (value + kNoFraction) - kNoFraction;
}

inline float clamp(float value, float low, float high) {
  const float at_least = value < low ? low : value;
  return at_least > high ? high : at_least;
}

// The code range of b bits: -2^(b-1) .. 2^(b-1) - 1, as floats.
struct CodeRange {
  float low;
  float high;
  explicit CodeRange(int num_bits)
      : low(-static_cast<float>(1 << (num_bits - 1))), high(static_cast<float>((1 << (num_bits - 1)) - 1)) {}
};

// Clamp, then round half to even, as compressed-tensors quantizes; `ratio` is value / scale in f32.
inline float quantize(float ratio, CodeRange range) {
  return round_half_even(clamp(ratio, range.low, range.high));
}

// What a reader of the checkpoint sees.
inline float dequantize(float code, float scale) {
  return to_bf16(code * scale);
}

}  // namespace trefoil::lanes
