#include "kernels/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/elementary.h"
#include "kernels/random_test_data.h"

namespace trefoil {
namespace {

struct Choice {
  std::vector<int32_t> expert;
  std::vector<float> weight;
  bool ok = false;
};

Choice choose_top(const std::vector<float>& logits, const std::vector<float>& bias, size_t top_k,
                  double scaling = 1.0) {
  std::vector<float> score(logits.size()), biased(logits.size());
  std::vector<int32_t> order(logits.size());
  Choice choice{std::vector<int32_t>(top_k), std::vector<float>(top_k)};
  choice.ok = choose_experts(logits, bias, scaling, {score, biased, order}, choice.expert, choice.weight);
  return choice;
}

TEST(Router, TheBiasChoosesAndTheScoreWeighs) {
  // Expert 2 has the lowest score but the largest bias.
  const Choice choice = choose_top({2.0f, 1.0f, -3.0f, 0.0f}, {0, 0, 5, 0}, 2, 2.5);
  ASSERT_TRUE(choice.ok);
  EXPECT_EQ(choice.expert, (std::vector<int32_t>{0, 2}));
  const double s0 = 1 / (1 + std::exp(-2.0)), s2 = 1 / (1 + std::exp(3.0));
  EXPECT_NEAR(choice.weight[0], 2.5 * s0 / (s0 + s2), 1e-6);
  EXPECT_NEAR(choice.weight[1], 2.5 * s2 / (s0 + s2), 1e-6);
}

TEST(Router, TiesGoToTheLowerId) {
  EXPECT_EQ(choose_top(std::vector<float>(9, 0.25f), std::vector<float>(9), 3).expert, (std::vector<int32_t>{0, 1, 2}));
  const std::vector<float> logits = {0.0f, 1.0f, 0.5f, 0.5f, 0.5f};
  EXPECT_EQ(choose_top(logits, std::vector<float>(5), 2).expert, (std::vector<int32_t>{1, 2}));
}

TEST(Router, ChoosesTheLargestOfManyInAscendingOrder) {
  testing::Random random(51);
  const std::vector<float> logits = random.vector(896, -6, 6);
  const std::vector<float> bias = random.vector(896, -0.2f, 0.2f);
  const Choice choice = choose_top(logits, bias, 16);
  ASSERT_TRUE(choice.ok);
  float total = 0;
  for (size_t i = 0; i < choice.expert.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(choice.expert[i - 1], choice.expert[i]);
    }
    total += choice.weight[i];
    const size_t e = static_cast<size_t>(choice.expert[i]);
    int better = 0;
    for (size_t other = 0; other < logits.size(); ++other) {
      better += sigmoid_f32(logits[other]) + bias[other] > sigmoid_f32(logits[e]) + bias[e];
    }
    EXPECT_LT(better, 16);
  }
  EXPECT_NEAR(total, 1.0f, 1e-6);
}

TEST(Router, AllExpertsMayBeChosen) {
  EXPECT_EQ(choose_top({3, 1, 2}, {0, 0, 0}, 3).expert, (std::vector<int32_t>{0, 1, 2}));
}

TEST(Router, ANanIsReported) {
  EXPECT_FALSE(choose_top({0.0f, std::numeric_limits<float>::quiet_NaN()}, {0, 0}, 1).ok);
}

}  // namespace
}  // namespace trefoil
