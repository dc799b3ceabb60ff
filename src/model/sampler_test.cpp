#include "model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// How often each id comes in `draws` draws.
std::map<int32_t, double> shares(const SamplingOptions& options, const std::vector<float>& logits, int draws = 20000) {
  Sampler sampler(options);
  std::map<int32_t, double> share;
  for (int i = 0; i < draws; ++i) share[sampler.sample(logits)] += 1.0 / draws;
  return share;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// Five standard deviations of a share of p in 20000 draws.
double noise(double p) {
  return 5 * std::sqrt(p * (1 - p) / 20000);
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfEqualOnes) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 3}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -5}), 1);
}

TEST(Sampler, DrawsFromTheSoftmax) {
  const std::vector<double> p = {0.1, 0.6, 0.3};
  const auto share = shares({.temperature = 1}, logs(p));
  for (const auto& [id, value] : share)
    EXPECT_NEAR(value, p[static_cast<size_t>(id)], noise(p[static_cast<size_t>(id)]));
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const std::vector<float> logits = logs({0.2, 0.8});
  EXPECT_NEAR(shares({.temperature = 0.5}, logits)[1], 0.64 / 0.68, noise(0.94));
  EXPECT_NEAR(shares({.temperature = 2}, logits)[1], 2.0 / 3, noise(0.67));
}

TEST(Sampler, TopKKeepsTheFirstAndTiesGoToTheLowerId) {
  const auto share = shares({.temperature = 1, .top_k = 2}, logs({0.2, 0.4, 0.2, 0.2}));
  ASSERT_EQ(share.size(), 2u);
  EXPECT_NEAR(share.at(1), 2.0 / 3, noise(0.67));
  EXPECT_NEAR(share.at(0), 1.0 / 3, noise(0.33));
}

TEST(Sampler, TopPKeepsTheShortestRunThatReachesIt) {
  const std::vector<float> logits = logs({0.5, 0.3, 0.15, 0.05});
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.4}, logits).size(), 1u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.6}, logits).size(), 2u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.9}, logits).size(), 3u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 1e-9}, logits).size(), 1u);  // never none
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
  // Of the first two, 0.5 is 0.625: enough for 0.6, which of all four it would not be.
  EXPECT_EQ(shares({.temperature = 1, .top_k = 2, .top_p = 0.6}, logs({0.5, 0.3, 0.15, 0.05})).size(), 1u);
}

TEST(Sampler, MinPIsRelativeToTheLargest) {
  const std::vector<float> logits = logs({0.5, 0.3, 0.15, 0.05});
  EXPECT_EQ(shares({.temperature = 1, .min_p = 0.2}, logits).size(), 3u);
  EXPECT_EQ(shares({.temperature = 1, .min_p = 0.5}, logits).size(), 2u);
  EXPECT_EQ(shares({.temperature = 1, .min_p = 1}, logits).size(), 1u);
}

TEST(Sampler, TheSeedDecidesEverything) {
  const std::vector<float> logits = logs({0.25, 0.25, 0.25, 0.25});
  const auto draws = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(sampler.sample(logits));
    return ids;
  };
  EXPECT_EQ(draws(5), draws(5));
  EXPECT_NE(draws(5), draws(6));
  // SplitMix64 from 0 begins with 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F: in quarters of [0, 1).
  const std::vector<int32_t> ids = draws(0);
  EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + 3), (std::vector<int32_t>{3, 1, 0}));
}

TEST(Sampler, WhatIsNoDistributionIsRefused) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    EXPECT_THROW(sampler.sample(std::vector<float>{0, kNan}), Error);
    EXPECT_THROW(sampler.sample(std::vector<float>{0, kInfinity}), Error);
    EXPECT_THROW(sampler.sample(std::vector<float>{-kInfinity, -kInfinity}), Error);
    EXPECT_THROW(sampler.sample({}), Error);
  }
}

TEST(Sampler, MaskedTokensAreNeverDrawn) {
  const auto share = shares({.temperature = 100}, {0, -kInfinity, 0});
  EXPECT_EQ(share.count(1), 0u);
  EXPECT_EQ(share.size(), 2u);
}

TEST(Sampler, OptionsOutOfRangeAreRefused) {
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = -1}, SamplingOptions{.temperature = kNan},
        SamplingOptions{.temperature = kInfinity}, SamplingOptions{.top_k = -1}, SamplingOptions{.top_p = 0},
        SamplingOptions{.top_p = 1.1}, SamplingOptions{.top_p = kNan}, SamplingOptions{.min_p = -0.1},
        SamplingOptions{.min_p = 2}}) {
    EXPECT_THROW(Sampler{options}, Error);
  }
}

}  // namespace
}  // namespace trefoil
