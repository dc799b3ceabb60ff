#include "eval/token_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trefoil {
namespace {

TokenComparison compare(const std::vector<float>& r, const std::vector<float>& c, int32_t target) {
  TokenScore a, b;
  return compare_token(r, c, target, &a, &b);
}

TEST(TokenStats, KldOfTwoCoinsByHand) {
  // p = (3/4, 1/4), q = (1/2, 1/2): KLD = 3/4 ln(3/2) + 1/4 ln(1/2)
  const std::vector<float> r = {std::log(3.0f), 0.0f}, c = {1.0f, 1.0f};
  TokenScore rs, cs;
  const TokenComparison t = compare_token(r, c, 1, &rs, &cs);
  EXPECT_NEAR(t.kld, 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-7);
  EXPECT_NEAR(rs.nll, std::log(4.0), 1e-7);
  EXPECT_NEAR(cs.nll, std::log(2.0), 1e-12);
  EXPECT_NEAR(t.delta_p, 0.25, 1e-7);
  EXPECT_NEAR(cs.entropy, std::log(2.0), 1e-12);
  EXPECT_NEAR(rs.entropy, 0.75 * std::log(4.0 / 3.0) + 0.25 * std::log(4.0), 1e-7);
}

TEST(TokenStats, ThreeTokensAgainstLongDouble) {
  const std::vector<float> r = {0.3f, -1.25f, 2.5f}, c = {0.1f, -0.5f, 2.75f};
  long double zr = 0, zc = 0, kld = 0;
  for (size_t v = 0; v < 3; ++v) zr += expl(r[v]), zc += expl(c[v]);
  for (size_t v = 0; v < 3; ++v) kld += expl(r[v]) / zr * ((r[v] - logl(zr)) - (c[v] - logl(zc)));
  EXPECT_NEAR(compare(r, c, 0).kld, static_cast<double>(kld), 1e-15);
}

TEST(TokenStats, EqualLogitsAreExactlyZeroAndShiftsNearlySo) {
  std::vector<float> r(1000);
  for (size_t v = 0; v < r.size(); ++v) r[v] = static_cast<float>(std::sin(static_cast<double>(v)) * 10);
  EXPECT_EQ(compare(r, r, 7).kld, 0.0);
  std::vector<float> shifted = r;
  for (float& value : shifted) value += 4.0f;
  const double kld = compare(r, shifted, 7).kld;
  EXPECT_GE(kld, 0.0);
  EXPECT_LT(kld, 1e-12);
}

TEST(TokenStats, LargeLogitsDoNotOverflow) {
  const std::vector<float> r = {3e4f, 0.0f}, c = {0.0f, 3e4f};
  TokenScore rs, cs;
  EXPECT_NEAR(compare_token(r, c, 0, &rs, &cs).kld, 3e4, 1e-6);
  EXPECT_EQ(rs.nll, 0.0);
  EXPECT_EQ(cs.nll, 3e4);
}

TEST(TokenStats, ScoreTokenAgreesWithCompareToken) {
  const std::vector<float> r = {0.3f, -1.25f, 2.5f}, c = {0.1f, -0.5f, 2.75f};
  TokenScore rs, cs;
  compare_token(r, c, 1, &rs, &cs);
  EXPECT_EQ(score_token(r, 1).nll, rs.nll);
  EXPECT_EQ(score_token(c, 1).nll, cs.nll);
  EXPECT_EQ(score_token(c, 1).entropy, cs.entropy);
}

TEST(TokenStats, AgreementByHand) {
  const std::vector<float> r = {7, 6, 5, 4, 3, 2, 1};
  const std::vector<float> c = {6, 7, 5, 1, 2, 4, 3};  // top five: 1 0 2 5 6
  const TokenComparison t = compare(r, c, 0);
  EXPECT_FALSE(t.same_top1);
  EXPECT_DOUBLE_EQ(t.top5_overlap, 0.6);  // 0 1 2 of 0 1 2 3 4
  EXPECT_TRUE(compare(r, r, 0).same_top1);
  EXPECT_DOUBLE_EQ(compare(r, r, 0).top5_overlap, 1.0);
}

TEST(TokenStats, TiesGoToTheLowerId) {
  const std::vector<float> r = {1, 2, 2, 0, 0, 0, 0}, c = {1, 2, 1.5f, 0, 0, 0, 0};
  EXPECT_TRUE(compare(r, c, 0).same_top1);
  EXPECT_DOUBLE_EQ(compare(r, c, 0).top5_overlap, 1.0);  // the tied zeros 3 and 4 on both sides
}

TEST(TokenStats, VocabularyBelowFive) {
  const std::vector<float> r = {1, 2}, c = {2, 1};
  EXPECT_DOUBLE_EQ(compare(r, c, 0).top5_overlap, 1.0);
}

TEST(TokenStats, FindsTheFirstNonFiniteLogit) {
  std::vector<float> logits = {1, 2, std::numeric_limits<float>::infinity(), std::nanf("")};
  EXPECT_EQ(first_non_finite(logits), 2);
  logits = {1, 2};
  EXPECT_FALSE(first_non_finite(logits).has_value());
}

}  // namespace
}  // namespace trefoil
