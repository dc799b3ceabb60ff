#include "tensor/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

namespace trefoil {
namespace {

TEST(FirstNonFinite, FindsInfinitiesAndNaNs) {
  std::vector<float> values = {0.0f, -0.0f, std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min()};
  EXPECT_FALSE(first_non_finite(DType::kF32, std::as_bytes(std::span(values))));
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    values[2] = bad;
    EXPECT_EQ(first_non_finite(DType::kF32, std::as_bytes(std::span(values))), 2);
  }
  const std::vector<double> doubles = {1e300, -INFINITY};
  EXPECT_EQ(first_non_finite(DType::kF64, std::as_bytes(std::span(doubles))), 1);
}

TEST(FirstNonFinite, HalfAndByteFormats) {
  const std::vector<uint16_t> bf16 = {0x7F7F, 0xFF7F, 0xFF80};
  EXPECT_EQ(first_non_finite(DType::kBF16, std::as_bytes(std::span(bf16))), 2);
  const std::vector<uint16_t> f16 = {0x7BFF, 0xFBFF, 0x7E00};
  EXPECT_EQ(first_non_finite(DType::kF16, std::as_bytes(std::span(f16))), 2);
  const std::vector<uint8_t> e4m3 = {0x7E, 0xFE, 0xFF};
  EXPECT_EQ(first_non_finite(DType::kF8E4M3, std::as_bytes(std::span(e4m3))), 2);
  const std::vector<uint8_t> e5m2 = {0x7B, 0xFC};
  EXPECT_EQ(first_non_finite(DType::kF8E5M2, std::as_bytes(std::span(e5m2))), 1);
}

TEST(FirstNonFinite, IntegersHaveNone) {
  const std::vector<uint32_t> ones = {0xFFFFFFFFu, 0xFFFFFFFFu};
  EXPECT_FALSE(first_non_finite(DType::kI32, std::as_bytes(std::span(ones))));
}

TEST(FirstNonFinite, AnyAlignment) {
  std::vector<std::byte> bytes(9);
  const float bad = NAN;
  std::memcpy(bytes.data() + 5, &bad, sizeof bad);
  EXPECT_EQ(first_non_finite(DType::kF32, Bytes(bytes).subspan(1)), 1);
}

}  // namespace
}  // namespace trefoil
