#include "kernels/elementary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "kernels/random_test_data.h"

namespace trefoil {
namespace {

constexpr double kRelative = 3e-12;  // the promise of elementary.h, before the rounding to f32

// Half a unit in the last place of f32 at `value`, plus what the double computation may be off.
double tolerance(double value) {
  return std::max(std::fabs(value) * (0x1p-24 + kRelative), 0x1p-150);
}

TEST(Elementary, CoresKeepTheirRelativeError) {
  for (double x = -199; x < 199; x += 0.0137) EXPECT_NEAR(exp_core(x) / std::exp(x), 1.0, kRelative) << x;
  for (double x = 1e-30; x < 200; x *= 1.07) {
    EXPECT_NEAR(tanh_core(x) / std::tanh(x), 1.0, kRelative) << x;
    EXPECT_EQ(tanh_core(-x), -tanh_core(x)) << x;
  }
  for (double x = -199; x < 199; x += 0.0137) EXPECT_NEAR(sigmoid_core(x) * (1.0 + std::exp(-x)), 1.0, kRelative) << x;
}

TEST(Elementary, F32ResultsAreRoundedOnce) {
  testing::Random random(11);
  for (int i = 0; i < 20000; ++i) {
    const float x = random.uniform(-100, 88);
    EXPECT_NEAR(exp_f32(x), std::exp(static_cast<double>(x)), tolerance(std::exp(static_cast<double>(x)))) << x;
    const double sigmoid = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(sigmoid_f32(x), sigmoid, tolerance(sigmoid)) << x;
    EXPECT_NEAR(silu_f32(x), x * sigmoid, tolerance(x * sigmoid)) << x;
  }
}

TEST(Elementary, ExtremesGoToTheirLimits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-kInfinity), 0.0f);
  EXPECT_EQ(exp_f32(kInfinity), kInfinity);
  EXPECT_EQ(exp_f32(-1e30f), 0.0f);
  EXPECT_GT(exp_f32(-100.0f), 0.0f);  // subnormal, not flushed
  EXPECT_EQ(sigmoid_f32(-kInfinity), 0.0f);
  EXPECT_EQ(sigmoid_f32(kInfinity), 1.0f);
  EXPECT_EQ(sigmoid_f32(0.0f), 0.5f);
  EXPECT_EQ(tanh_core(1e300), 1.0);
  EXPECT_EQ(tanh_core(0.0), 0.0);
  EXPECT_TRUE(std::signbit(tanh_core(-0.0)));
}

TEST(Elementary, NanStaysNan) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(exp_f32(kNan)));
  EXPECT_TRUE(std::isnan(sigmoid_f32(kNan)));
  EXPECT_TRUE(std::isnan(silu_f32(kNan)));
  EXPECT_TRUE(std::isnan(tanh_core(kNan)));
}

TEST(Situ, BoundsBothHalves) {
  const Situ unit{.beta = 4, .linear_beta = 25};
  const float gate[] = {0.0f, 1.5f, -2.0f, 1000.0f, -1000.0f};
  const float up[] = {3.0f, -0.75f, 40.0f, 1e6f, 5.0f};
  float out[5];
  situ(unit, gate, up, Rounding::kNone, out);
  for (int i = 0; i < 5; ++i) {
    const double g = gate[i];
    const double expected = 4 * std::tanh(g / 4) / (1 + std::exp(-g)) * 25 * std::tanh(up[i] / 25.0);
    EXPECT_NEAR(out[i], expected, std::fabs(expected) * 1e-7) << i;
  }
  EXPECT_EQ(out[3], 100.0f);
  EXPECT_EQ(out[4], 0.0f);
}

TEST(Situ, RoundsOnceAtTheEnd) {
  const Situ unit{.beta = 4, .linear_beta = 25};
  const float gate[] = {1.2345678f};
  const float up[] = {2.3456789f};
  float exact[1], bf16[1];
  situ(unit, gate, up, Rounding::kNone, exact);
  situ(unit, gate, up, Rounding::kBf16, bf16);
  EXPECT_NE(exact[0], bf16[0]);
  EXPECT_EQ(round_to_bf16(exact[0]), bf16[0]);
}

TEST(OutputGate, RoundsTheSigmoidAndTheProduct) {
  testing::Random random(12);
  int twice_differs_from_once = 0;
  for (int i = 0; i < 200; ++i) {
    const float x[] = {round_to_bf16(random.uniform(-2, 2))};
    const float gate[] = {random.uniform(-4, 4)};
    float out[1];
    multiply_sigmoid(x, gate, Rounding::kBf16, out);
    EXPECT_EQ(out[0], round_to_bf16(x[0] * round_to_bf16(sigmoid_f32(gate[0]))));
    twice_differs_from_once += out[0] != round_to_bf16(x[0] * sigmoid_f32(gate[0]));
  }
  EXPECT_GT(twice_differs_from_once, 0);
}

}  // namespace
}  // namespace trefoil
