#include "quantize/hessian.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quantize/linalg.h"
#include "quantize/solver_test_data.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using solver_test::correlated_inputs;
using solver_test::gaussian;
using solver_test::mxfp4_like_weights;

TEST(Hessian, IsTheWeightedSecondMoment) {
  constexpr int64_t kDim = 13, kTokens = 700;  // more than two runs, and a rest
  const std::vector<float> x = gaussian(kTokens * kDim, 1);
  std::vector<float> weights(kTokens);
  double sum = 0, square = 0;
  for (size_t t = 0; t < weights.size(); ++t) {
    weights[t] = t % 5 == 0 ? 0.0f : 0.1f * static_cast<float>(t % 7 + 1);
    sum += weights[t];
    square += static_cast<double>(weights[t]) * weights[t];
  }
  HessianAccumulator accumulator(kDim);
  accumulator.add(x, weights);
  EXPECT_EQ(accumulator.tokens(), kTokens);
  EXPECT_NEAR(accumulator.effective_tokens(), sum * sum / square, 1e-9);
  const std::vector<float> h = accumulator.mean();
  for (size_t i = 0; i < kDim; ++i) {
    for (size_t j = 0; j < kDim; ++j) {
      double want = 0;
      for (size_t t = 0; t < kTokens; ++t)
        want += static_cast<double>(weights[t]) * x[t * kDim + i] * x[t * kDim + j] / sum;
      EXPECT_NEAR(h[i * kDim + j], want, 2e-6);
      EXPECT_EQ(h[i * kDim + j], h[j * kDim + i]);
    }
  }
}

TEST(Hessian, DoesNotDependOnHowTokensAreCutIntoCalls) {
  constexpr int64_t kDim = 32, kTokens = 600;
  const std::vector<float> x = gaussian(kTokens * kDim, 2);
  HessianAccumulator at_once(kDim), in_pieces(kDim);
  at_once.add(x, {});
  for (int64_t t = 0; t < kTokens;) {
    const int64_t count = std::min<int64_t>(1 + t % 77, kTokens - t);
    in_pieces.add(std::span(x).subspan(static_cast<size_t>(t * kDim), static_cast<size_t>(count * kDim)), {});
    if (t % 3 == 0) in_pieces.mean();  // asking in between changes nothing
    t += count;
  }
  EXPECT_EQ(at_once.mean(), in_pieces.mean());
}

TEST(Hessian, NothingAddedIsZero) {
  HessianAccumulator accumulator(8);
  accumulator.add({}, {});
  EXPECT_EQ(accumulator.mean(), std::vector<float>(64, 0.0f));
  EXPECT_EQ(accumulator.effective_tokens(), 0.0);
  const std::vector<float> x(8, 1.0f), weight = {0.0f};
  accumulator.add(x, weight);
  EXPECT_EQ(accumulator.mean(), std::vector<float>(64, 0.0f));
}

TEST(Hessian, RefusesWhatIsNotFinite) {
  HessianAccumulator accumulator(4);
  std::vector<float> x(12, 1.0f);
  x[6] = std::numeric_limits<float>::quiet_NaN();
  try {
    accumulator.add(x, {});
    FAIL() << "a NaN was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("input 2 of token 1"));
  }
  const std::vector<float> one(4, 1.0f);
  for (const float bad : {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> weight = {bad};
    EXPECT_THROW(HessianAccumulator(4).add(one, weight), Error);
    EXPECT_THROW(CrossAccumulator(4).add(one, one, weight), Error);
  }
  HessianAccumulator large(4);
  large.add(std::vector<float>(4, 1e30f), {});
  EXPECT_THROW(large.mean(), Error);
}

TEST(Shrinkage, FollowsTheRule) {
  EXPECT_EQ(shrinkage_lambda(128, 0), 1.0);
  EXPECT_NEAR(shrinkage_lambda(128, 32), 0.5, 1e-12);
  EXPECT_EQ(dampening_after_shrinkage(1.0), 0.2);
  EXPECT_EQ(dampening_after_shrinkage(0.01), 0.01);
  EXPECT_EQ(dampening_without_target(0.5), 0.5);
}

TEST(Shrinkage, KeepsTheTraceAndMeetsBothEnds) {
  const std::vector<float> shared = solver_test::hessian_of(correlated_inputs(300, 16, 3), 16);
  const std::vector<float> own = solver_test::hessian_of(correlated_inputs(5, 16, 9), 16);
  const auto trace = [](const std::vector<float>& h) {
    double sum = 0;
    for (size_t i = 0; i < 16; ++i) sum += h[i * 17];
    return sum;
  };
  for (const double lambda : {0.0, 0.3, 1.0}) {
    std::vector<float> h = own;
    shrink_towards(h, shared, 16, lambda);
    EXPECT_NEAR(trace(h), trace(own), 1e-5 * trace(own));
    if (lambda == 0.0) {
      EXPECT_EQ(h, own);
    }
    if (lambda == 1.0) {
      EXPECT_NEAR(h[3], shared[3] * trace(own) / trace(shared), 1e-5);
    }
  }
  std::vector<float> empty(256, 0.0f);
  shrink_towards(empty, shared, 16, 1.0);
  EXPECT_EQ(empty, shared);
  std::vector<float> alone = own;
  shrink_towards(alone, std::vector<float>(256, 0.0f), 16, 0.5);
  EXPECT_EQ(alone, own);
}

// With alpha 1 and no ridge, W* on the quantized stream is the least-squares answer to W on the original one.
TEST(MismatchTarget, ReproducesTheOriginalOutputs) {
  constexpr int64_t kDim = 24, kTokens = 400, kRows = 6;
  const std::vector<float> original = correlated_inputs(kTokens, kDim, 5), noise = gaussian(kTokens * kDim, 6);
  std::vector<float> quantized = original;
  for (size_t i = 0; i < quantized.size(); ++i) quantized[i] = 0.9f * quantized[i] + 0.1f * noise[i];
  HessianAccumulator hessian(kDim);
  hessian.add(quantized, {});
  CrossAccumulator cross(kDim);
  cross.add(original, quantized, {});
  const std::vector<float> weight = mxfp4_like_weights(kRows, kDim, 7), h = hessian.mean(), c = cross.mean();
  const auto mismatch = [&](const std::vector<float>& candidate) {
    double sum = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t r = 0; r < kRows; ++r) {
        double difference = 0;
        for (int64_t j = 0; j < kDim; ++j) {
          difference += static_cast<double>(weight[static_cast<size_t>(r * kDim + j)]) *
                            original[static_cast<size_t>(t * kDim + j)] -
                        static_cast<double>(candidate[static_cast<size_t>(r * kDim + j)]) *
                            quantized[static_cast<size_t>(t * kDim + j)];
        }
        sum += difference * difference;
      }
    }
    return sum;
  };
  const std::vector<float> map = mismatch_map(c, h, kDim, 1e-6);
  const auto target = [&](double alpha) { return mismatch_target(weight, map, kRows, kDim, alpha); };
  const double none = mismatch(target(0)), half = mismatch(target(0.5)), full = mismatch(target(1));
  EXPECT_NEAR(none, mismatch(weight), 1e-9 * none);
  EXPECT_LT(half, 0.9 * none);
  EXPECT_LT(full, half);
  std::vector<float> nudged = target(1);
  nudged[10] += 0.01f;  // any other weight is worse: it is the minimum
  EXPECT_GT(mismatch(nudged), full);
  EXPECT_TRUE(mismatch_map(c, std::vector<float>(kDim * kDim, 0.0f), kDim).empty());
  EXPECT_EQ(mismatch_target(weight, {}, kRows, kDim, 1.0), weight);
}

TEST(RowLosses, AgreeWithPlainLoops) {
  constexpr int64_t kDim = 1100, kRows = 32;  // more than two blocks of columns, the last one incomplete
  static_assert(kDim > 2 * kLossTerms && kDim % kLossTerms != 0);
  const std::vector<float> e = gaussian(kRows * kDim, 8),  // transposed: [kDim, kRows]
      h = solver_test::hessian_of(correlated_inputs(200, kDim, 9), kDim);
  const std::vector<double> losses = row_losses(e, h, kRows, kDim);
  for (const size_t row : {size_t{0}, size_t{13}, size_t{31}}) {
    double want = 0;
    for (size_t i = 0; i < kDim; ++i) {
      for (size_t j = 0; j < kDim; ++j)
        want += static_cast<double>(e[i * kRows + row]) * h[i * kDim + j] * e[j * kRows + row];
    }
    EXPECT_NEAR(losses[row], want, 1e-6 * want);
  }
  EXPECT_TRUE(row_losses({}, h, 0, kDim).empty());
}

}  // namespace
}  // namespace trefoil
