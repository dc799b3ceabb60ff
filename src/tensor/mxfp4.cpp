#include "tensor/mxfp4.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace trefoil {
namespace {

// All sixteen codes: the eight magnitudes, then their negatives (code 8 is -0).
constexpr float kE2m1Signed[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

constexpr uint8_t kNanScale = 255;
// Up to 2^(252 - 127) the largest magnitude, 6, stays finite; above it the codes decide.
constexpr uint8_t kLargestSafeScale = 252;

void decode_group(const uint8_t* packed, float scale, float* out) {
  for (int64_t j = 0; j < kMxfp4GroupSize / 2; ++j) {
    out[2 * j] = kE2m1Signed[packed[j] & 0xF] * scale;
    out[2 * j + 1] = kE2m1Signed[packed[j] >> 4] * scale;
  }
}

// bf16 has the exponent range of f32 and a product carries two significant bits, so finite in f32 is finite in bf16.
bool all_finite(const float* values) {
  for (int64_t k = 0; k < kMxfp4GroupSize; ++k) {
    if (!std::isfinite(values[k])) return false;
  }
  return true;
}

// The scale byte of the ceil rule, exact: with max = m * 2^k, m in [1/2, 1), max <= 6 * 2^e means m * 2^k <= 3/4 * 2^(e+3).
uint8_t ceil_scale(float largest) {
  if (largest == 0.0f) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(largest, &exponent);
  const int e = mantissa <= 0.75f ? exponent - 3 : exponent - 2;
  return static_cast<uint8_t>(std::clamp(e + 127, 0, static_cast<int>(kNanScale) - 1));
}

float largest_magnitude(const float* values) {
  uint32_t largest = 0;  // magnitudes of floats are in the order of their bits
  for (int64_t k = 0; k < kMxfp4GroupSize; ++k) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[k]) & 0x7FFFFFFFu);
  }
  return std::bit_cast<float>(largest);
}

// The nearest code of a value in units of the scale: how many of the midpoints between magnitudes it passes. At a midpoint
// the even code wins, so every second one is passed by equality.
uint32_t nearest_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float a = std::bit_cast<float>(bits & 0x7FFFFFFFu);
  const int magnitude = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint32_t>(magnitude) | (bits >> 31 << 3);
}

void encode_group(const float* values, float inverse_scale, uint8_t* packed) {
  uint32_t codes[kMxfp4GroupSize];
  for (int64_t k = 0; k < kMxfp4GroupSize; ++k) codes[k] = nearest_code(values[k] * inverse_scale);
  for (int64_t j = 0; j < kMxfp4GroupSize / 2; ++j) {
    packed[j] = static_cast<uint8_t>(codes[2 * j] | codes[2 * j + 1] << 4);
  }
}

}  // namespace

const float kE2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

float e8m0_to_f32(uint8_t e) {
  if (e == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(e) << 23);
}

bool mxfp4_decode_row(std::span<const uint8_t> packed, std::span<const uint8_t> scale, std::span<float> out) {
  TREFOIL_CHECK(out.size() % kMxfp4GroupSize == 0 && packed.size() * 2 == out.size() &&
                scale.size() * kMxfp4GroupSize == out.size());
  for (size_t group = 0; group < scale.size(); ++group) {
    if (scale[group] == kNanScale) return false;
    float* values = out.data() + group * kMxfp4GroupSize;
    decode_group(packed.data() + group * (kMxfp4GroupSize / 2), e8m0_to_f32(scale[group]), values);
    if (scale[group] > kLargestSafeScale && !all_finite(values)) return false;
  }
  return true;
}

void mxfp4_encode_row(std::span<const float> values, std::span<uint8_t> packed, std::span<uint8_t> scale) {
  TREFOIL_CHECK(values.size() % kMxfp4GroupSize == 0 && packed.size() * 2 == values.size() &&
                scale.size() * kMxfp4GroupSize == values.size());
  for (size_t group = 0; group < scale.size(); ++group) {
    const float* from = values.data() + group * kMxfp4GroupSize;
    scale[group] = ceil_scale(largest_magnitude(from));
    const float inverse_scale = std::ldexp(1.0f, 127 - static_cast<int>(scale[group]));
    encode_group(from, inverse_scale, packed.data() + group * (kMxfp4GroupSize / 2));
  }
}

}  // namespace trefoil
