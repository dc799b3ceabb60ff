#include "synthetic/random_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trefoil {
namespace {

std::vector<float> normals(const RandomStream& stream, uint64_t first, size_t count) {
  std::vector<float> out(count);
  stream.normal(first, out);
  return out;
}

double normal_cdf(double x) {
  return std::erfc(-x / std::sqrt(2.0)) / 2;
}

TEST(RandomStream, AnyPartCanBeDrawnAlone) {
  const RandomStream stream(3, "a");
  const std::vector<float> whole = normals(stream, 0, 1000);
  const std::vector<float> part = normals(stream, 400, 100);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 400));
  std::vector<float> uniform(100);
  std::vector<float> uniform_part(10);
  stream.uniform(0, uniform);
  stream.uniform(50, uniform_part);
  EXPECT_TRUE(std::equal(uniform_part.begin(), uniform_part.end(), uniform.begin() + 50));
}

TEST(RandomStream, SeedAndNameChangeEveryNumber) {
  const std::vector<float> base = normals(RandomStream(3, "a"), 0, 100);
  for (const RandomStream& other : {RandomStream(4, "a"), RandomStream(3, "b")}) {
    const std::vector<float> numbers = normals(other, 0, 100);
    for (size_t i = 0; i < numbers.size(); ++i) EXPECT_NE(numbers[i], base[i]) << i;
  }
}

// Kolmogorov-Smirnov: sqrt(n) times the largest distance of the two distribution functions is over 2.23 with
// probability 1e-4.
TEST(RandomStream, NormalNumbersHaveTheNormalDistribution) {
  std::vector<float> numbers = normals(RandomStream(1, "normal"), 0, 4'000'000);
  std::sort(numbers.begin(), numbers.end());
  const auto count = static_cast<double>(numbers.size());
  double distance = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double cdf = normal_cdf(static_cast<double>(numbers[i]));
    distance = std::max({distance, static_cast<double>(i + 1) / count - cdf, cdf - static_cast<double>(i) / count});
  }
  EXPECT_LT(std::sqrt(count) * distance, 2.23);
}

// Beyond 3.5 lies the second table. 4 standard deviations of a count.
TEST(RandomStream, TailsAreNormalToo) {
  const std::vector<float> numbers = normals(RandomStream(1, "tails"), 0, 8'000'000);
  for (const double limit : {3.6, 4.0, 4.5}) {
    const double expected = 2 * normal_cdf(-limit) * static_cast<double>(numbers.size());
    const auto beyond = std::count_if(numbers.begin(), numbers.end(),
                                      [&](float x) { return std::fabs(static_cast<double>(x)) > limit; });
    EXPECT_NEAR(static_cast<double>(beyond), expected, 4 * std::sqrt(expected)) << limit;
  }
  for (const float x : numbers) ASSERT_LT(std::fabs(x), 6.4f);
}

TEST(RandomStream, NeighboursAndStreamsAreUncorrelated) {
  const size_t count = 1'000'000;
  const std::vector<float> a = normals(RandomStream(1, "experts.0.w1"), 0, count);
  const std::vector<float> b = normals(RandomStream(1, "experts.1.w1"), 0, count);
  double streams = 0;
  double neighbours = 0;
  for (size_t i = 0; i + 1 < count; ++i) {
    streams += static_cast<double>(a[i] * b[i]);
    neighbours += static_cast<double>(a[i] * a[i + 1]);
  }
  const double deviation = std::sqrt(static_cast<double>(count));
  EXPECT_LT(std::fabs(streams), 4 * deviation);
  EXPECT_LT(std::fabs(neighbours), 4 * deviation);
}

TEST(RandomStream, UniformNumbersFillTheUnitInterval) {
  std::vector<float> numbers(1'000'000);
  RandomStream(1, "uniform").uniform(0, numbers);
  std::vector<double> bins(100);
  for (const float x : numbers) {
    ASSERT_GE(x, 0.0f);
    ASSERT_LT(x, 1.0f);
    ++bins[static_cast<size_t>(x * 100.0f)];
  }
  for (const double bin : bins) EXPECT_NEAR(bin, 10'000.0, 5 * 100.0);
}

TEST(UpperNormalQuantile, KnownValues) {
  EXPECT_NEAR(upper_normal_quantile(0.5), 0, 1e-12);
  EXPECT_NEAR(upper_normal_quantile(0.025), 1.959963984540054, 1e-12);
  EXPECT_NEAR(upper_normal_quantile(0.9), -1.2815515655446004, 1e-12);
}

}  // namespace
}  // namespace trefoil
