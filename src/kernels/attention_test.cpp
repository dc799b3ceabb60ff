#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/attn_res.h"
#include "kernels/random_test_data.h"
#include "kernels/softmax.h"

namespace trefoil {
namespace {

using testing::Random;

TEST(Softmax, SumsToOneAndIgnoresAnOffset) {
  std::vector<float> row = {1000.0f, 1001.0f, 999.0f};
  softmax(row, Rounding::kNone);
  const double total = 1 + std::exp(1.0) + std::exp(-1.0);
  EXPECT_NEAR(row[0], 1 / total, 1e-6);
  EXPECT_NEAR(row[1], std::exp(1.0) / total, 1e-6);
  EXPECT_NEAR(row[2], std::exp(-1.0) / total, 1e-6);
}

struct Problem {
  int64_t tokens = 40, key_dim = 12, value_dim = 9, v_stride = 11;
  std::vector<float> q, k, v;
  Problem() {
    Random random(41);
    q = random.vector(tokens * key_dim, -3, 3);
    k = random.vector(tokens * key_dim, -3, 3);
    v = random.vector(tokens * v_stride);
  }
  // The last tokens - first outputs.
  std::vector<float> run(int64_t first, Rounding rounding) const {
    std::vector<float> out(static_cast<size_t>((tokens - first) * value_dim));
    std::vector<float> scores;
    causal_attention({.q = q.data() + first * key_dim,
                      .k = k.data(),
                      .v = v.data(),
                      .out = out.data(),
                      .tokens = tokens - first,
                      .first = first,
                      .key_dim = key_dim,
                      .value_dim = value_dim,
                      .v_stride = v_stride,
                      .scale = 0.3f,
                      .rounding = rounding},
                     scores);
    return out;
  }
};

TEST(CausalAttention, IsASoftmaxOverThePast) {
  const Problem p;
  const std::vector<float> out = p.run(0, Rounding::kNone);
  for (int64_t t = 0; t < p.tokens; ++t) {
    std::vector<double> weight;
    double total = 0;
    for (int64_t s = 0; s <= t; ++s) {
      double score = 0;
      for (int64_t d = 0; d < p.key_dim; ++d) {
        score += static_cast<double>(p.q[static_cast<size_t>(t * p.key_dim + d)]) *
                 p.k[static_cast<size_t>(s * p.key_dim + d)];
      }
      weight.push_back(std::exp(0.3 * score));
      total += weight.back();
    }
    for (int64_t d = 0; d < p.value_dim; ++d) {
      double expected = 0;
      for (int64_t s = 0; s <= t; ++s) {
        expected += weight[static_cast<size_t>(s)] / total * p.v[static_cast<size_t>(s * p.v_stride + d)];
      }
      EXPECT_NEAR(out[static_cast<size_t>(t * p.value_dim + d)], expected, 2e-5) << t;
    }
  }
}

TEST(CausalAttention, BitsDoNotDependOnTheCut) {
  const Problem p;
  for (const Rounding rounding : {Rounding::kNone, Rounding::kBf16}) {
    const std::vector<float> whole = p.run(0, rounding);
    for (int64_t first = 1; first < p.tokens; ++first) {
      const std::vector<float> tail = p.run(first, rounding);
      EXPECT_TRUE(std::equal(tail.begin(), tail.end(), whole.begin() + first * p.value_dim)) << first;
    }
  }
}

TEST(AttnRes, MixesRawCandidatesBySoftmaxOfTheirNormalisedScores) {
  Random random(42);
  const size_t hidden = 37;
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 3; ++i) rows.push_back(random.vector(static_cast<int64_t>(hidden), -2, 2));
  const std::vector<float> wp = random.vector(static_cast<int64_t>(hidden));
  const float* candidates[] = {rows[0].data(), rows[1].data(), rows[2].data()};
  std::vector<float> scores(3), out(hidden);
  attn_res_mix(candidates, wp, 1e-5f, Rounding::kNone, scores, out);

  std::vector<double> weight;
  double total = 0;
  for (const auto& row : rows) {
    double square = 0, dot = 0;
    for (size_t d = 0; d < hidden; ++d) {
      square += static_cast<double>(row[d]) * row[d];
      dot += static_cast<double>(row[d]) * wp[d];
    }
    weight.push_back(std::exp(dot / std::sqrt(square / static_cast<double>(hidden) + 1e-5)));
    total += weight.back();
  }
  for (size_t d = 0; d < hidden; ++d) {
    double expected = 0;
    for (size_t i = 0; i < 3; ++i) expected += weight[i] / total * rows[i][d];
    EXPECT_NEAR(out[d], expected, 1e-5);
  }
}

TEST(AttnRes, MayOverwriteACandidate) {
  Random random(43);
  std::vector<float> a = random.vector(20), b = random.vector(20);
  const std::vector<float> wp = random.vector(20);
  const float* candidates[] = {a.data(), b.data()};
  std::vector<float> scores(2), apart(20);
  attn_res_mix(candidates, wp, 1e-5f, Rounding::kBf16, scores, apart);
  attn_res_mix(candidates, wp, 1e-5f, Rounding::kBf16, scores, b);
  EXPECT_EQ(b, apart);
}

}  // namespace
}  // namespace trefoil
