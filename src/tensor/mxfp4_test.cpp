// The known answer was produced by compressed-tensors 0.17.1; see docs/formats.md.
#include "tensor/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "tensor/bf16.h"

namespace trefoil {
namespace {

// One group of 32 columns: the given bytes first, zeros after.
std::vector<float> decode_one_group(std::vector<uint8_t> bytes, uint8_t scale) {
  bytes.resize(16, 0);
  std::vector<float> out(32, -99.0f);
  const std::vector<uint8_t> scales = {scale};
  EXPECT_TRUE(mxfp4_decode_row(bytes, scales, out)) << int{scale};
  return out;
}

bool decodes(uint8_t code, uint8_t scale) {
  const std::vector<uint8_t> packed(16, static_cast<uint8_t>(code | code << 4));
  std::vector<float> out(32);
  const std::vector<uint8_t> scales = {scale};
  return mxfp4_decode_row(packed, scales, out);
}

// The definition, by exponents: no table, no float multiplication.
double value_of(uint8_t code, uint8_t scale) {
  const int exponent = (code >> 1) & 3;
  const int mantissa = code & 1;
  const double magnitude = exponent == 0 ? 0.5 * mantissa : std::ldexp(1.0 + 0.5 * mantissa, exponent - 1);
  return std::ldexp(code & 8 ? -magnitude : magnitude, scale - 127);
}

TEST(Mxfp4, GivesTheReferenceBits) {
  const std::vector<float> out = decode_one_group({0x9E, 0x80, 0x7F, 0x13}, 127);
  const uint16_t expected[] = {0xc080, 0xbf00, 0x0000, 0x8000, 0xc0c0, 0x40c0, 0x3fc0, 0x3f00};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(f32_to_bf16(out[i]), expected[i]) << "column " << i;
}

TEST(Mxfp4, LowNibbleIsTheEvenColumn) {
  const std::vector<float> out = decode_one_group({0x21}, 127);
  EXPECT_EQ(out[0], 0.5f);
  EXPECT_EQ(out[1], 1.0f);
}

TEST(Mxfp4, EveryCodeUnderEveryScaleIsExactOrRefused) {
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, -7), 127);  // of bf16
  for (int scale = 0; scale < 255; ++scale) {
    for (uint8_t code = 0; code < 16; ++code) {
      const double expected = value_of(code, static_cast<uint8_t>(scale));
      ASSERT_EQ(decodes(code, static_cast<uint8_t>(scale)), std::fabs(expected) <= largest)
          << scale << " " << int{code};
      if (std::fabs(expected) > largest) continue;
      const std::vector<float> out =
          decode_one_group(std::vector<uint8_t>(16, static_cast<uint8_t>(code * 0x11)), static_cast<uint8_t>(scale));
      ASSERT_EQ(static_cast<double>(out[0]), expected) << scale << " " << int{code};
      ASSERT_EQ(std::signbit(out[31]), (code & 8) != 0);
      ASSERT_EQ(round_to_bf16(out[31]), out[31]) << "exact in bf16";
    }
  }
}

TEST(Mxfp4, TheSmallestScaleIsASubnormalAndNotZero) {
  EXPECT_EQ(e8m0_to_f32(0), 0x1p-127f);
  EXPECT_EQ(e8m0_to_f32(1), 0x1p-126f);
  EXPECT_EQ(e8m0_to_f32(127), 1.0f);
  EXPECT_EQ(e8m0_to_f32(254), 0x1p127f);
  EXPECT_EQ(decode_one_group({0x01}, 0)[0], 0x1p-128f);
}

TEST(Mxfp4, ScaleByte255IsRefusedEvenOverZeros) {
  EXPECT_FALSE(decodes(0, 255));
}

TEST(Mxfp4, OverflowIsRefusedByTheCodesThatOverflow) {
  EXPECT_TRUE(decodes(7, 252));   // 6 * 2^125
  EXPECT_TRUE(decodes(5, 253));   // 3 * 2^126
  EXPECT_FALSE(decodes(6, 253));  // 4 * 2^126
  EXPECT_TRUE(decodes(3, 254));   // 1.5 * 2^127
  EXPECT_FALSE(decodes(4, 254));  // 2 * 2^127
  EXPECT_FALSE(decodes(12, 254));
}

// Scales are one per 32 columns, the last group included, and stride with their own row length.
TEST(Mxfp4, EachGroupUsesItsOwnScale) {
  const std::vector<uint8_t> packed(48, 0x22);  // 1.0 everywhere
  const std::vector<uint8_t> scales = {127, 128, 125};
  std::vector<float> out(96);
  ASSERT_TRUE(mxfp4_decode_row(packed, scales, out));
  for (size_t k = 0; k < 96; ++k) ASSERT_EQ(out[k], k < 32 ? 1.0f : k < 64 ? 2.0f : 0.25f) << k;
}

TEST(Mxfp4, ABadScaleInTheLastGroupIsSeen) {
  const std::vector<uint8_t> packed(48, 0);
  const std::vector<uint8_t> scales = {127, 127, 255};
  std::vector<float> out(96);
  EXPECT_FALSE(mxfp4_decode_row(packed, scales, out));
}

}  // namespace
}  // namespace trefoil
