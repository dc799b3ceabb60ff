// bf16.h and float16.h: every 16-bit pattern, and rounding at and beside every midpoint.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/bf16.h"
#include "tensor/float16.h"

namespace trefoil {
namespace {

uint16_t pattern(int bits) {
  return static_cast<uint16_t>(bits);
}

// Checks that `narrow` sends the midpoint of two neighbouring positive patterns to the even one and its neighbours
// apart.
template <typename Widen, typename Narrow>
void check_midpoints(int first, int last, Widen widen, Narrow narrow) {
  for (int bits = first; bits < last; ++bits) {
    const float low = widen(pattern(bits));
    const float high = widen(pattern(bits + 1));
    const float middle = low + (high - low) / 2;
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(narrow(middle), even) << bits;
    ASSERT_EQ(narrow(-middle), even | 0x8000) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, low)), bits);
    ASSERT_EQ(narrow(std::nextafter(middle, high)), bits + 1);
  }
}

TEST(Bf16, EveryPatternSurvivesTheTripThroughF32) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(pattern(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
    } else {
      ASSERT_EQ(f32_to_bf16(value), bits);
    }
  }
}

TEST(Bf16, RoundsToNearestEvenEverywhere) {
  check_midpoints(0, 0x7F7F, bf16_to_f32, f32_to_bf16);
}

TEST(Bf16, OverflowIsInfinityAndNanStaysNan) {
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(f32_to_bf16(-std::numeric_limits<float>::infinity()), 0xFF80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7F800001u)))));  // payload in the lost half
}

TEST(Float16, EveryPatternHasTheValueOfTheDefinition) {
  for (int bits = 0; bits < 0x7C00; ++bits) {
    const int exponent = bits >> 10;
    const int mantissa = bits & 0x3FF;
    const double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(f16_to_f32(pattern(bits))), expected) << bits;
    ASSERT_EQ(static_cast<double>(f16_to_f32(pattern(bits | 0x8000))), -expected) << bits;
  }
  EXPECT_EQ(f16_to_f32(0x7C00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(f16_to_f32(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7C01)));
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
}

TEST(Float16, EveryPatternSurvivesTheTripThroughF32) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(pattern(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      ASSERT_EQ(f32_to_f16(value), bits);
    }
  }
}

TEST(Float16, RoundsToNearestEvenEverywhereSubnormalsIncluded) {
  check_midpoints(0, 0x7BFF, f16_to_f32, f32_to_f16);
}

TEST(Float16, OverflowIsInfinityFromTheMidpointOn) {
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xFC00);
  EXPECT_EQ(f32_to_f16(0x1p-26f), 0x0000);
}

}  // namespace
}  // namespace trefoil
