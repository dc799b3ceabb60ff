#include "eval/estimates.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trefoil {
namespace {

TEST(Estimates, EqualSequencesGiveTheStandardErrorOfTheirMeans) {
  // three sequences of two tokens with means 2, 4, 9: mean 5, SE = sd / sqrt(3) = sqrt(13) / sqrt(3)
  const std::vector<int32_t> row = {0, 0, 1, 1, 2, 2};
  const std::vector<double> values = {1, 3, 4, 4, 8, 10};
  const Estimate mean = mean_by_row({row, 3}, values);
  EXPECT_DOUBLE_EQ(mean.value, 5.0);
  EXPECT_NEAR(mean.standard_error, std::sqrt(13.0 / 3.0), 1e-12);
}

TEST(Estimates, UnequalSequencesWeighByTokens) {
  // a = (3, 1), b = (2, 1): R = 4/3; residuals 3 - 8/3 = 1/3 and 1 - 4/3 = -1/3; SE = sqrt(2 * 2/9) / 3 = 2/9
  const Estimate ratio = ratio_of_sums(std::vector<double>{3, 1}, std::vector<double>{2, 1});
  EXPECT_DOUBLE_EQ(ratio.value, 4.0 / 3.0);
  EXPECT_NEAR(ratio.standard_error, 2.0 / 9.0, 1e-12);
}

TEST(Estimates, OneSequenceHasNoErrorAndNoTokensHaveNoValue) {
  EXPECT_TRUE(std::isnan(ratio_of_sums(std::vector<double>{3}, std::vector<double>{2}).standard_error));
  EXPECT_TRUE(std::isnan(ratio_of_sums(std::vector<double>{0}, std::vector<double>{0}).value));
}

TEST(Estimates, SequencesWithoutTheSourceDoNotCount) {
  // the middle sequence has no member token: two sequences remain
  const std::vector<int32_t> row = {0, 1, 2};
  const std::vector<double> values = {1, 100, 3};
  const std::vector<uint8_t> member = {1, 0, 1};
  const Estimate mean = mean_by_row({row, 3}, values, member);
  EXPECT_DOUBLE_EQ(mean.value, 2.0);
  EXPECT_NEAR(mean.standard_error, 1.0, 1e-12);  // sd of (1, 3) is sqrt(2); over sqrt(2)
}

TEST(Estimates, QuantilesInterpolate) {
  const std::vector<double> values = {40, 10, 30, 20};
  const std::vector<double> levels = {0, 0.5, 0.9, 1};
  const std::vector<double> q = quantiles(values, levels);
  EXPECT_DOUBLE_EQ(q[0], 10);
  EXPECT_DOUBLE_EQ(q[1], 25);
  EXPECT_NEAR(q[2], 37, 1e-12);  // position 2.7
  EXPECT_DOUBLE_EQ(q[3], 40);
}

TEST(Estimates, QuantileErrorIsThatOfTheBootstrap) {
  // Two sequences, values {0, 0} and {1, 1}. A replicate's median is 0 (both draws first), 1, or 0.5, with
  // probabilities 1/4, 1/4, 1/2: standard deviation sqrt(1/8).
  const std::vector<int32_t> row = {0, 0, 1, 1};
  const std::vector<double> values = {0, 0, 1, 1};
  const std::vector<double> levels = {0.5};
  const std::vector<Estimate> q = quantiles_by_row({row, 2}, values, levels, 1, 20000);
  EXPECT_DOUBLE_EQ(q[0].value, 0.5);
  EXPECT_NEAR(q[0].standard_error, std::sqrt(0.125), 0.005);
  const std::vector<Estimate> again = quantiles_by_row({row, 2}, values, levels, 1, 20000);
  EXPECT_EQ(q[0].standard_error, again[0].standard_error);
}

TEST(Estimates, EveryLevelOfABootstrapIsFilled) {
  std::vector<int32_t> row;
  std::vector<double> values;
  for (int s = 0; s < 10; ++s) {
    for (int i = 0; i < 50; ++i) {
      row.push_back(s);
      values.push_back(std::fmod(s * 7.3 + i * 1.7, 11.0));
    }
  }
  const std::vector<double> levels = {0.5, 0.9, 0.95, 0.99, 0.999, 1.0};
  const std::vector<double> plain = quantiles(values, levels);
  const std::vector<Estimate> q = quantiles_by_row({row, 10}, values, levels, 3, 200);
  for (size_t i = 0; i < levels.size(); ++i) {
    EXPECT_EQ(q[i].value, plain[i]);
    EXPECT_TRUE(std::isfinite(q[i].standard_error)) << levels[i];
  }
}

TEST(Estimates, Correlation) {
  const std::vector<double> x = {1, 2, 3}, y = {2, 4, 7}, constant = {5, 5, 5};
  EXPECT_NEAR(correlation(x, y), 5.0 / std::sqrt(2.0 * 38.0 / 3.0), 1e-12);
  EXPECT_TRUE(std::isnan(correlation(x, constant)));
}

}  // namespace
}  // namespace trefoil
