#include "tensor/mxfp4.h"

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

}  // namespace trefoil
