// bfloat16: the upper half of an IEEE binary32. Stored as uint16_t everywhere.
#pragma once

#include <bit>
#include <cstdint>

namespace trefoil {

inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Nearest, ties to even; overflow becomes infinity; a NaN stays a (quiet) NaN; subnormals are kept.
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// The value after one trip through bf16.
inline float round_to_bf16(float value) {
  return bf16_to_f32(f32_to_bf16(value));
}

}  // namespace trefoil
