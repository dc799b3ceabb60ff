// The known answer was produced by compressed-tensors 0.17.1; see docs/formats.md.
#include "tensor/mxfp4.h"

#include <gtest/gtest.h>

#include <algorithm>
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

struct EncodedGroup {
  std::vector<uint8_t> packed = std::vector<uint8_t>(16);
  std::vector<uint8_t> scale = std::vector<uint8_t>(1);
};

// The given values first, zeros after.
EncodedGroup encode_one_group(std::vector<float> values) {
  values.resize(32, 0.0f);
  EncodedGroup group;
  mxfp4_encode_row(values, group.packed, group.scale);
  return group;
}

// ceil(log2(max / 6)) by hand: 6 is the largest value under scale 1, the next float needs 2; 3 fits 1/2, and so on.
TEST(Mxfp4Encode, ScaleIsTheSmallestThatHoldsTheLargest) {
  const auto scale_of = [](float largest) { return int{encode_one_group({0.0f, -largest}).scale[0]}; };
  EXPECT_EQ(scale_of(6.0f), 127);
  EXPECT_EQ(scale_of(std::nextafterf(6.0f, 7.0f)), 128);
  EXPECT_EQ(scale_of(12.0f), 128);
  EXPECT_EQ(scale_of(4.0f), 127);
  EXPECT_EQ(scale_of(3.0f), 126);
  EXPECT_EQ(scale_of(std::nextafterf(3.0f, 4.0f)), 127);
  EXPECT_EQ(scale_of(1.0f), 125);     // 1 / 6 > 1 / 8
  EXPECT_EQ(scale_of(0.0469f), 121);  // just above 3 / 64
  EXPECT_EQ(scale_of(0.0468f), 120);  // just below
  EXPECT_EQ(scale_of(0.0f), 0);
  EXPECT_EQ(scale_of(0x1p-149f), 0);  // no smaller scale exists
  EXPECT_EQ(scale_of(3.0e38f), 253);  // 6 * 2^126 is above the largest float, 6 * 2^125 below this
}

// Under scale 1, since the group holds a 6. Midpoints go to the even code: 0.25 to 0, 0.75 and 1.25 to 1, 1.75 and 2.5 to
// 2, 3.5 and 5 to 4.
TEST(Mxfp4Encode, ValuesGoToTheNearestCodeAndTiesToTheEvenOne) {
  const EncodedGroup group = encode_one_group({6.0f, -6.0f, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, -5.0f,  //
                                               0.26f, 0.74f, 1.26f, 1.74f, 2.51f, -3.49f, 5.01f, -0.1f});
  const std::vector<uint8_t> expected = {0xF7, 0x20, 0x42, 0x64, 0xE6, 0x11, 0x33, 0xD5, 0x87};
  EXPECT_EQ(group.scale[0], 127);
  EXPECT_EQ(std::vector<uint8_t>(group.packed.begin(), group.packed.begin() + 9), expected);
}

TEST(Mxfp4Encode, EveryCodeRoundTrips) {
  for (int scale = 1; scale <= 252; ++scale) {
    std::vector<uint8_t> packed(16);
    for (int j = 0; j < 16; ++j) packed[static_cast<size_t>(j)] = static_cast<uint8_t>(0x97 + 0x1B * j);
    packed[3] = 0x7F;  // the largest magnitude fixes the scale
    const std::vector<float> values = decode_one_group(packed, static_cast<uint8_t>(scale));
    const EncodedGroup group = encode_one_group(values);
    EXPECT_EQ(int{group.scale[0]}, scale);
    EXPECT_EQ(group.packed, packed) << scale;
  }
}

TEST(Mxfp4Encode, EveryGroupHasItsOwnScale) {
  std::vector<float> values(64, 6.0f);
  std::fill(values.begin() + 32, values.end(), 0.75f);
  std::vector<uint8_t> packed(32);
  std::vector<uint8_t> scale(2);
  mxfp4_encode_row(values, packed, scale);
  EXPECT_EQ(scale, (std::vector<uint8_t>{127, 124}));
  EXPECT_EQ(packed, std::vector<uint8_t>(32, 0x77));
}

}  // namespace
}  // namespace trefoil
