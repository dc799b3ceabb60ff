#include "kernels/short_conv.h"

#include <gtest/gtest.h>

#include "kernels/elementary.h"

namespace trefoil {
namespace {

TEST(ShortConv, TheLastTapIsTheTokenItself) {
  const float oldest[] = {1, 10}, middle[] = {2, 20}, newest[] = {3, 30};
  const float* taps[] = {oldest, middle, newest};
  const float weight[] = {0.5f, 0.1f, -1.0f, 0.2f, 2.0f, 0.3f};  // [tap][channel]
  float out[2];
  short_conv(taps, weight, Rounding::kNone, out);
  EXPECT_FLOAT_EQ(out[0], silu_f32(0.5f - 2.0f + 6.0f));
  EXPECT_FLOAT_EQ(out[1], silu_f32(1.0f + 4.0f + 9.0f));
}

TEST(ShortConv, RoundsAfterSilu) {
  const float token[] = {1.2345f};
  const float* taps[] = {token};
  const float weight[] = {1.0f};
  float out[1];
  short_conv(taps, weight, Rounding::kBf16, out);
  EXPECT_EQ(out[0], round_to_bf16(silu_f32(1.2345f)));
}

}  // namespace
}  // namespace trefoil
