#include "kernels/kda.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/norm.h"
#include "kernels/random_test_data.h"

namespace trefoil {
namespace {

using testing::Random;

// One head's inputs for `tokens` tokens, and a state to start from.
struct Problem {
  int64_t tokens, dim;
  std::vector<float> q, k, v, lg, beta, state;

  Problem(uint64_t seed, int64_t num_tokens, int64_t head_dim, float lg_low, float lg_high)
      : tokens(num_tokens), dim(head_dim) {
    Random random(seed);
    q = random.vector(tokens * dim), k = random.vector(tokens * dim), v = random.vector(tokens * dim);
    lg = random.vector(tokens * dim, lg_low, lg_high);
    beta = random.vector(tokens, 0, 1);
    state = random.vector(dim * dim, -0.5f, 0.5f);
    for (int64_t t = 0; t < tokens; ++t) {
      const std::span<float> query(q.data() + t * dim, static_cast<size_t>(dim));
      const std::span<float> key(k.data() + t * dim, static_cast<size_t>(dim));
      l2_normalize(query, 1.0f / std::sqrt(static_cast<float>(dim)), query);
      l2_normalize(key, 1.0f, key);
    }
  }
};

struct Result {
  std::vector<float> out, state;
};

template <typename Form>
Result run(Form form, const Problem& p, int64_t first_call) {
  Result result{std::vector<float>(p.v.size()), p.state};
  std::vector<float> scratch;
  for (const auto& [begin, end] : {std::pair(int64_t{0}, first_call), std::pair(first_call, p.tokens)}) {
    const int64_t offset = begin * p.dim;
    form({.q = p.q.data() + offset,
          .k = p.k.data() + offset,
          .v = p.v.data() + offset,
          .lg = p.lg.data() + offset,
          .beta = p.beta.data() + begin,
          .state = result.state.data(),
          .out = result.out.data() + offset,
          .tokens = end - begin,
          .dim = p.dim,
          .stride = p.dim},
         scratch);
  }
  return result;
}

// The definition in double, in the order of the formula and no other.
Result judge(const Problem& p) {
  const size_t dim = static_cast<size_t>(p.dim);
  std::vector<double> s(p.state.begin(), p.state.end());
  Result result{std::vector<float>(p.v.size()), {}};
  for (size_t t = 0; t < static_cast<size_t>(p.tokens); ++t) {
    for (size_t row = 0; row < dim; ++row) {
      double* state = s.data() + row * dim;
      double read = 0;
      for (size_t d = 0; d < dim; ++d) {
        state[d] *= std::exp(static_cast<double>(p.lg[t * dim + d]));
        read += state[d] * p.k[t * dim + d];
      }
      const double error = p.beta[t] * (p.v[t * dim + row] - read);
      double out = 0;
      for (size_t d = 0; d < dim; ++d) {
        state[d] += error * p.k[t * dim + d];
        out += state[d] * p.q[t * dim + d];
      }
      result.out[t * dim + row] = static_cast<float>(out);
    }
  }
  result.state.assign(s.begin(), s.end());
  return result;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

// |k| = 1, beta < 1 and alpha <= 1, so a step never amplifies an error in S; every token adds at most a few roundings
// of values below 2 (|S| entries) to it and a dot of `dim` terms. 64 roundings of 2^-24 a token is generous.
float bound(const Problem& p) {
  return static_cast<float>(p.tokens) * 64 * 0x1p-24f;
}

TEST(KdaRecurrent, IsTheDefinition) {
  for (const int64_t dim : {16, 24, 64}) {
    const Problem p(31, 40, dim, -5, 0);
    const Result result = run(kda_recurrent, p, 0);
    const Result expected = judge(p);
    EXPECT_LT(largest_difference(result.out, expected.out), bound(p));
    EXPECT_LT(largest_difference(result.state, expected.state), bound(p));
  }
}

TEST(KdaRecurrent, BitsDoNotDependOnTheCut) {
  const Problem p(32, 23, 32, -2, 0);
  const Result whole = run(kda_recurrent, p, 0);
  for (int64_t cut = 1; cut < p.tokens; ++cut) {
    const Result result = run(kda_recurrent, p, cut);
    EXPECT_EQ(result.out, whole.out) << cut;
    EXPECT_EQ(result.state, whole.state) << cut;
  }
}

TEST(KdaChunked, EqualsTheDefinitionAtEveryLengthAroundTheBlocks) {
  for (const int64_t tokens : {1, 2, 15, 16, 17, 33, 63, 64, 65, 130, 200}) {
    const Problem p(33, tokens, 32, -1, 0);
    const Result result = run(kda_chunked, p, 0);
    const Result expected = judge(p);
    EXPECT_LT(largest_difference(result.out, expected.out), bound(p)) << tokens;
    EXPECT_LT(largest_difference(result.state, expected.state), bound(p)) << tokens;
  }
}

TEST(KdaChunked, CutsAgreeWithinTheBound) {
  const Problem p(34, 90, 16, -0.3f, 0);
  const Result expected = judge(p);
  for (int64_t cut = 1; cut < p.tokens; cut += 7) {
    EXPECT_LT(largest_difference(run(kda_chunked, p, cut).out, expected.out), bound(p)) << cut;
  }
}

// The decay of a whole chunk reaches exp(-320) at the release's bound and far less under a stronger one: nothing may
// overflow, and what has decayed to nothing is nothing.
TEST(KdaChunked, StrongDecayNeverOverflows) {
  for (const float lg : {-4.99f, -50.0f, -1000.0f}) {
    const Problem p(35, 128, 16, lg, lg * 0.99f);
    const Result result = run(kda_chunked, p, 0);
    const Result expected = judge(p);
    EXPECT_LT(largest_difference(result.out, expected.out), bound(p)) << lg;
    EXPECT_LT(largest_difference(result.state, expected.state), bound(p)) << lg;
  }
}

TEST(KdaChunked, NoDecayAtAllKeepsEverything) {
  const Problem p(36, 100, 16, 0, 0);
  EXPECT_LT(largest_difference(run(kda_chunked, p, 0).out, judge(p).out), bound(p));
}

TEST(KdaLogDecay, BoundsASigmoidOfTheScaledSum) {
  const float g[] = {0.5f, -100.0f, 100.0f};
  const float dt_bias[] = {-1.5f, 0.0f, 0.0f};
  float lg[3];
  kda_log_decay(g, dt_bias, 7.0f, -5.0, lg);
  EXPECT_NEAR(lg[0], -5.0 / (1 + std::exp(7.0)), 1e-8);
  EXPECT_EQ(lg[1], 0.0f);
  EXPECT_EQ(lg[2], -5.0f);
}

}  // namespace
}  // namespace trefoil
