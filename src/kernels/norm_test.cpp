#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/elementary.h"
#include "kernels/random_test_data.h"

namespace trefoil {
namespace {

using testing::Random;

double mean_square(const std::vector<float>& x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return sum / static_cast<double>(x.size());
}

TEST(RmsNorm, DividesByTheRootOfMeanPlusEps) {
  Random random(21);
  for (const int64_t n : {1, 15, 16, 17, 200}) {
    const std::vector<float> x = random.vector(n, -0.01f, 0.01f);  // small, so that eps counts
    const std::vector<float> weight = random.vector(n, 0.5f, 1.5f);
    std::vector<float> out(x.size());
    rms_norm(x, weight, 1e-5f, Rounding::kNone, out);
    const double scale = 1.0 / std::sqrt(mean_square(x) + 1e-5);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(out[i], weight[i] * x[i] * scale, 1e-6) << n;
  }
}

TEST(RmsNorm, RoundsBeforeAndAfterTheWeight) {
  Random random(22);
  const std::vector<float> x = random.vector(64);
  const std::vector<float> weight = random.vector(64, 0.5f, 1.5f);
  std::vector<float> out(64), exact(64), ones(64, 1.0f);
  rms_norm(x, weight, 1e-5f, Rounding::kBf16, out);
  rms_norm(x, ones, 1e-5f, Rounding::kNone, exact);
  int twice_differs_from_once = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(out[i], round_to_bf16(weight[i] * round_to_bf16(exact[i])));
    twice_differs_from_once += out[i] != round_to_bf16(weight[i] * exact[i]);
  }
  EXPECT_GT(twice_differs_from_once, 0);
}

TEST(RmsNorm, MayWorkInPlace) {
  Random random(23);
  std::vector<float> x = random.vector(50);
  const std::vector<float> weight = random.vector(50);
  std::vector<float> out(50);
  rms_norm(x, weight, 1e-5f, Rounding::kBf16, out);
  rms_norm(x, weight, 1e-5f, Rounding::kBf16, x);
  EXPECT_EQ(x, out);
}

TEST(GatedRmsNorm, MultipliesBySigmoidAndRoundsOnce) {
  Random random(24);
  const std::vector<float> x = random.vector(32);
  const std::vector<float> weight = random.vector(32, 0.5f, 1.5f);
  const std::vector<float> gate = random.vector(32, -4, 4);
  std::vector<float> out(32), rounded_out(32);
  gated_rms_norm(x, weight, gate, 1e-5f, Rounding::kNone, out);
  gated_rms_norm(x, weight, gate, 1e-5f, Rounding::kBf16, rounded_out);
  const double scale = 1.0 / std::sqrt(mean_square(x) + 1e-5);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = weight[i] * x[i] * scale / (1 + std::exp(-static_cast<double>(gate[i])));
    EXPECT_NEAR(out[i], expected, 1e-6);
    EXPECT_EQ(rounded_out[i], round_to_bf16(out[i]));
  }
}

TEST(L2Normalize, AddsItsEpsToTheSumInsideTheRoot) {
  const std::vector<float> x = {3e-4f, 4e-4f};  // sum of squares 2.5e-7, under the epsilon
  std::vector<float> out(2);
  l2_normalize(x, 0.5f, out);
  const double length = std::sqrt(2.5e-7 + 1e-6);
  EXPECT_NEAR(out[0], 3e-4 / length * 0.5, 1e-7);
  EXPECT_NEAR(out[1], 4e-4 / length * 0.5, 1e-7);
}

}  // namespace
}  // namespace trefoil
