#include "quantize/token_lists.h"

#include <gmock/gmock.h>

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::IsEmpty;

// Three tokens, two experts each of four; expert 2 sees none.
Routing three_tokens() {
  Routing routing;
  routing.tokens = 3;
  routing.top_k = 2;
  routing.expert = {0, 3, 0, 1, 1, 3};
  routing.weight = {0.75f, 0.25f, 0.5f, 0.5f, 0.125f, 0.875f};
  return routing;
}

std::vector<ExpertTokens> tokens_by_expert(const Routing& routing, size_t num_experts) {
  std::vector<ExpertTokens> experts(num_experts);
  append_tokens(experts, 0, routing, 0);
  return experts;
}

TEST(TokenLists, EveryRoutedPairAppearsOnceWithItsGate) {
  const std::vector<ExpertTokens> experts = tokens_by_expert(three_tokens(), 4);
  ASSERT_EQ(experts.size(), 4u);
  EXPECT_THAT(experts[0].token, ElementsAre(0, 1));
  EXPECT_THAT(experts[0].gate, ElementsAre(0.75f, 0.5f));
  EXPECT_THAT(experts[1].token, ElementsAre(1, 2));
  EXPECT_THAT(experts[2].token, IsEmpty());
  EXPECT_THAT(experts[3].gate, ElementsAre(0.25f, 0.875f));
  EXPECT_THAT(experts[3].weight, ElementsAre(1.0f, 1.0f));
}

TEST(TokenLists, SomeExpertsOfALaterBlock) {
  std::vector<ExpertTokens> experts(2);  // experts 1 and 2
  append_tokens(experts, 1, three_tokens(), 0);
  append_tokens(experts, 1, three_tokens(), 3);
  EXPECT_THAT(experts[0].token, ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(experts[0].gate, ElementsAre(0.5f, 0.125f, 0.5f, 0.125f));
  EXPECT_THAT(experts[1].token, IsEmpty());
}

TEST(TokenLists, WeightsAreGateSquaredOverTheSquaredNormWithMeanOne) {
  std::vector<ExpertTokens> experts = tokens_by_expert(three_tokens(), 4);
  const std::vector<double> norm = effect_norms(std::vector<float>{1, 1, 2, 2, 0, 0}, 2, 1.0);
  EXPECT_THAT(norm, ElementsAre(2.0, 5.0, 1.0));
  for (ExpertTokens& expert : experts) {
    std::vector<double> own;
    for (const int64_t token : expert.token) own.push_back(norm.at(static_cast<size_t>(token)));
    weigh_by_effect(expert, own);
  }
  // expert 0: 0.5625 / 2 and 0.25 / 5, scaled by 2 / (their sum)
  const double a = 0.5625 / 2, b = 0.25 / 5;
  EXPECT_THAT(experts[0].weight,
              ElementsAre(FloatEq(static_cast<float>(2 * a / (a + b))), FloatEq(static_cast<float>(2 * b / (a + b)))));
  EXPECT_THAT(experts[2].weight, IsEmpty());
}

TEST(TokenLists, GatesOfZeroLeaveEqualWeights) {
  Routing routing = three_tokens();
  for (float& weight : routing.weight) weight = 0;
  std::vector<ExpertTokens> experts = tokens_by_expert(routing, 4);
  weigh_by_effect(experts[0], std::vector<double>(2, 1.0));
  EXPECT_THAT(experts[0].weight, ElementsAre(1.0f, 1.0f));
}

}  // namespace
}  // namespace trefoil
