#include "quantize/solve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "quantize/solver_test_data.h"
#include "tensor/bf16.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using solver_test::exact_loss;
using solver_test::Problem;

constexpr std::span<const float> kNoHessian;

const std::vector<SolveOptions> kAllRecipes = {rtn_options(),
                                               rtn_mse_options(ScaleSign::kAny),
                                               rtn_mse_options(ScaleSign::kPositive),
                                               stock_options(false),
                                               stock_options(true),
                                               trefoil_options(0.01),
                                               trefoil_options(0.1, ScaleSign::kPositive)};

void expect_usable(const SolveResult& result) {
  const int low = -(1 << (result.q.num_bits - 1)), high = -low - 1;
  for (const int8_t code : result.q.codes) ASSERT_TRUE(code >= low && code <= high) << int{code};
  for (const uint16_t scale : result.q.scale) {
    ASSERT_TRUE(std::isfinite(bf16_to_f32(scale)));
    ASSERT_NE(bf16_to_f32(scale), 0.0f);
  }
  for (const float value : dequantize(result.q)) ASSERT_TRUE(std::isfinite(value));
  ASSERT_TRUE(std::isfinite(result.loss) && std::isfinite(result.relative_error) && std::isfinite(result.weight_error));
}

template <typename Body>
std::string error_of(Body body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

// GPTQ as gptq.md writes it, one column at a time, with the inverse, in f64.
std::vector<int8_t> plain_gptq(const std::vector<float>& weight, const std::vector<float>& hessian, int64_t rows,
                               int64_t cols, int64_t group_size, double frac, const std::vector<uint16_t>& scale) {
  const auto at = [cols](int64_t i, int64_t j) { return static_cast<size_t>(i * cols + j); };
  std::vector<int64_t> order(static_cast<size_t>(cols));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return hessian[at(a, a)] > hessian[at(b, b)]; });
  double mean = 0;
  for (int64_t j = 0; j < cols; ++j) mean += static_cast<double>(hessian[at(j, j)]) / static_cast<double>(cols);
  std::vector<double> h(static_cast<size_t>(cols * cols)), inverse(h.size(), 0.0);
  for (int64_t i = 0; i < cols; ++i) {
    for (int64_t j = 0; j < cols; ++j)
      h[at(i, j)] = hessian[at(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)])];
    h[at(i, i)] += frac * mean;
    inverse[at(i, i)] = 1;
  }
  for (int64_t p = 0; p < cols; ++p) {  // Gauss-Jordan
    const double pivot = h[at(p, p)];
    for (int64_t j = 0; j < cols; ++j) h[at(p, j)] /= pivot, inverse[at(p, j)] /= pivot;
    for (int64_t i = 0; i < cols; ++i) {
      const double factor = h[at(i, p)];
      if (i == p || factor == 0) continue;
      for (int64_t j = 0; j < cols; ++j)
        h[at(i, j)] -= factor * h[at(p, j)], inverse[at(i, j)] -= factor * inverse[at(p, j)];
    }
  }
  std::vector<double> w(weight.begin(), weight.end());
  std::vector<int8_t> codes(weight.size());
  for (int64_t step = 0; step < cols; ++step) {
    const int64_t col = order[static_cast<size_t>(step)];
    for (int64_t row = 0; row < rows; ++row) {
      const double s = bf16_to_f32(scale[static_cast<size_t>(row * (cols / group_size) + col / group_size)]);
      const double q = std::nearbyint(std::clamp(w[at(row, col)] / s, -4.0, 3.0));
      codes[at(row, col)] = static_cast<int8_t>(q);
      const double error =
          (w[at(row, col)] - static_cast<double>(round_to_bf16(static_cast<float>(q * s)))) / inverse[at(step, step)];
      for (int64_t k = step + 1; k < cols; ++k)
        w[at(row, order[static_cast<size_t>(k)])] -= error * inverse[at(step, k)];
    }
    // Eliminate the column from the inverse, as the recursion of the paper does.
    for (int64_t i = step + 1; i < cols; ++i) {
      const double factor = inverse[at(i, step)] / inverse[at(step, step)];
      for (int64_t j = step + 1; j < cols; ++j) inverse[at(i, j)] -= factor * inverse[at(step, j)];
    }
  }
  return codes;
}

TEST(Solve, AgreesWithTheUnblockedRecursionInDouble) {
  for (const int64_t cols : {64, 128, 192}) {
    const Problem problem(20, cols, 3 * cols, 1);
    const SolveResult result = solve(problem.input, problem.hessian, stock_options(false));
    const std::vector<int8_t> plain = plain_gptq(problem.weight, problem.hessian, 20, cols, 64, 0.01, result.q.scale);
    EXPECT_EQ(result.q.codes, plain) << cols;
  }
}

TEST(Solve, BlockSizeChangesOnlyRounding) {
  const Problem problem(40, 192, 500, 2);
  SolveOptions options = stock_options(false);
  options.block_size = 1;
  const SolveResult reference = solve(problem.input, problem.hessian, options);
  for (const int64_t block_size : {7, 32, 64, 128, 1000}) {
    options.block_size = block_size;
    const SolveResult result = solve(problem.input, problem.hessian, options);
    EXPECT_EQ(result.q.scale, reference.q.scale);
    EXPECT_NEAR(result.loss, reference.loss, 1e-4 * reference.loss) << block_size;
  }
}

TEST(Solve, ReportedLossIsTheExactLoss) {
  const Problem problem(33, 192, 400, 3);
  double energy = 0;
  {
    QuantizedMatrix zero{33, 192, 64, 3, std::vector<int8_t>(33 * 192, 0), std::vector<uint16_t>(33 * 3, 0x3F80)};
    energy = exact_loss(problem.weight, zero, problem.hessian);
  }
  for (const SolveOptions& options : kAllRecipes) {
    const SolveResult result = solve(problem.input, problem.hessian, options);
    const double exact = exact_loss(problem.weight, result.q, problem.hessian);
    EXPECT_NEAR(result.loss, exact, 1e-6 * exact);
    EXPECT_NEAR(result.relative_error, exact / energy, 1e-6 * exact / energy);
  }
}

// More freedom never costs: each recipe contains the one before.
TEST(Solve, SignedScalesBeatPositiveOnesBeatStock) {
  for (uint32_t seed = 10; seed < 14; ++seed) {
    const Problem problem(96, 256, 1500, seed);
    const double stock = solve(problem.input, problem.hessian, stock_options(false)).loss;
    const double positive = solve(problem.input, problem.hessian, trefoil_options(0.01, ScaleSign::kPositive)).loss;
    const double any = solve(problem.input, problem.hessian, trefoil_options(0.01, ScaleSign::kAny)).loss;
    EXPECT_LT(positive, 0.9 * stock) << seed;
    EXPECT_LT(any, 0.95 * positive) << seed;
  }
}

TEST(Solve, PositiveMeansPositive) {
  const Problem problem(64, 192, 500, 4);
  const SolveResult positive = solve(problem.input, problem.hessian, trefoil_options(0.01, ScaleSign::kPositive));
  for (const uint16_t scale : positive.q.scale) EXPECT_GT(bf16_to_f32(scale), 0.0f);
  const SolveResult any = solve(problem.input, problem.hessian, trefoil_options(0.01));
  EXPECT_TRUE(
      std::any_of(any.q.scale.begin(), any.q.scale.end(), [](uint16_t scale) { return bf16_to_f32(scale) < 0.0f; }));
}

TEST(Solve, RefinementNeverRaisesTheObjective) {
  for (const int64_t tokens : {5, 60, 2000}) {
    const Problem problem(50, 192, tokens, 5);
    SolveOptions options = trefoil_options(0.05);
    double last = std::numeric_limits<double>::infinity();
    for (options.refine_rounds = 0; options.refine_rounds <= 4; ++options.refine_rounds) {
      const SolveResult result = solve(problem.input, problem.hessian, options);
      EXPECT_LE(result.objective, last * (1 + 1e-9)) << tokens << " tokens, " << options.refine_rounds << " rounds";
      if (options.refine_rounds > 0) {
        EXPECT_LE(result.objective, result.objective_before_refine);
        EXPECT_GT(result.refine_rounds_kept, 0);
      }
      last = result.objective;
    }
  }
}

TEST(Solve, RowsAreIndependent) {
  const Problem problem(300, 128, 600, 6);  // more than one panel, and a panel that is not full
  for (const SolveOptions& options : {stock_options(true), trefoil_options(0.02)}) {
    const SolveResult whole = solve(problem.input, problem.hessian, options);
    for (const int64_t row : {0, 17, 255, 256, 299}) {
      SolveInput one = problem.input;
      one.rows = 1;
      one.weight = one.weight.subspan(static_cast<size_t>(row * 128), 128);
      const SolveResult result = solve(one, problem.hessian, options);
      EXPECT_TRUE(std::equal(result.q.codes.begin(), result.q.codes.end(), whole.q.codes.begin() + row * 128)) << row;
    }
  }
}

TEST(Solve, SameBitsFromEveryThread) {
  const Problem problem(48, 192, 300, 7);
  const SolveResult reference = solve(problem.input, problem.hessian, trefoil_options(0.01));
  ThreadPool pool(4);
  std::vector<SolveResult> results(8);
  pool.parallel_for(8, [&](int64_t i) {
    results[static_cast<size_t>(i)] = solve(problem.input, problem.hessian, trefoil_options(0.01));
  });
  for (const SolveResult& result : results) {
    EXPECT_EQ(result.q.codes, reference.q.codes);
    EXPECT_EQ(result.q.scale, reference.q.scale);
    EXPECT_EQ(result.loss, reference.loss);
  }
}

TEST(Solve, EqualDiagonalsAreProcessedByIndex) {
  std::vector<float> hessian(64 * 64, 0.0f);
  for (size_t j = 0; j < 64; ++j) hessian[j * 64 + j] = j == 40 ? 3.0f : j % 2 == 0 ? 2.0f : 1.0f;
  const PreparedHessian prepared = prepare_hessian(hessian, 64, trefoil_options(0.01));
  EXPECT_EQ(prepared.order.front(), 40);
  for (size_t i = 2; i < 64; ++i) {
    const bool same = hessian[static_cast<size_t>(prepared.order[i]) * 65] ==
                      hessian[static_cast<size_t>(prepared.order[i - 1]) * 65];
    if (same) {
      EXPECT_LT(prepared.order[i - 1], prepared.order[i]);
    }
  }
}

TEST(Solve, ZeroOneAndTwoTokens) {
  const Problem problem(32, 128, 2, 8);
  for (const int64_t tokens : {0, 1, 2}) {
    HessianAccumulator accumulator(128);
    accumulator.add(std::span(problem.inputs).first(static_cast<size_t>(tokens * 128)), {});
    const std::vector<float> hessian = accumulator.mean();
    for (const SolveOptions& options : kAllRecipes) {
      const SolveResult result = solve(problem.input, hessian, options);
      expect_usable(result);
      if (tokens == 0) {
        EXPECT_EQ(result.fallback, Fallback::kIdentity);
      }
      // A correct tool never answers a lack of evidence with zeros; the published one does when its mask is asked for.
      if (!options.zero_mask) {
        EXPECT_LT(result.weight_error, 0.25) << tokens;
      }
    }
  }
}

TEST(Solve, WithoutTokensTheAnswerIsRoundToNearest) {
  const Problem problem(32, 128, 10, 9);
  const SolveResult trefoil = solve(problem.input, kNoHessian, trefoil_options(0.01));
  const SolveResult rtn = solve(problem.input, kNoHessian, rtn_mse_options(ScaleSign::kAny));
  EXPECT_EQ(trefoil.fallback, Fallback::kIdentity);
  EXPECT_THAT(trefoil.fallback_reason, ::testing::HasSubstr("no Hessian"));
  EXPECT_EQ(trefoil.q.codes, rtn.q.codes);
  EXPECT_EQ(trefoil.q.scale, rtn.q.scale);
}

TEST(Solve, DeadColumnsKeepTheirRoundedWeight) {
  Problem problem(32, 128, 600, 11);
  for (const int64_t dead : {0, 63, 64, 127}) {
    for (int64_t k = 0; k < 128; ++k)
      problem.hessian[static_cast<size_t>(dead * 128 + k)] = problem.hessian[static_cast<size_t>(k * 128 + dead)] = 0;
  }
  for (const SolveOptions& options : {stock_options(false), trefoil_options(0.01)}) {
    const SolveResult result = solve(problem.input, problem.hessian, options);
    EXPECT_EQ(result.dead_columns, 4);
    const std::vector<float> quantized = dequantize(result.q);
    for (int64_t row = 0; row < 32; ++row) {
      const size_t at = static_cast<size_t>(row * 128 + 63);
      const float scale = std::abs(bf16_to_f32(result.q.scale_at(row, 63)));
      EXPECT_TRUE(std::abs(problem.weight[at] - quantized[at]) <= 0.51f * scale || std::abs(result.q.codes[at]) >= 3)
          << row;
    }
  }
  const SolveResult published = solve(problem.input, problem.hessian, stock_options(true));
  for (int64_t row = 0; row < 32; ++row) EXPECT_EQ(published.q.codes[static_cast<size_t>(row * 128 + 63)], 0);
}

TEST(Solve, ConstantZeroAndSingletonGroups) {
  Problem problem(4, 128, 300, 12);
  std::fill_n(problem.weight.begin(), 128, 0.25f);       // row 0: constant
  std::fill_n(problem.weight.begin() + 128, 128, 0.0f);  // row 1: zero
  std::fill_n(problem.weight.begin() + 256, 128, 0.0f);  // row 2: one non-zero in its second group
  problem.weight[256 + 100] = -3.0f;
  for (const SolveOptions& options : kAllRecipes) {
    const SolveResult result = solve(problem.input, problem.hessian, options);
    expect_usable(result);
    EXPECT_TRUE(
        std::all_of(result.q.codes.begin() + 128, result.q.codes.begin() + 256, [](int8_t code) { return code == 0; }));
  }
  const std::vector<float> quantized = dequantize(solve(problem.input, problem.hessian, trefoil_options(0.01)).q);
  EXPECT_NEAR(quantized[256 + 100], -3.0f, 0.02f);
  const std::vector<float> zeros(4 * 128, 0.0f);
  problem.input.weight = zeros;
  for (const SolveOptions& options : kAllRecipes) {
    const SolveResult result = solve(problem.input, problem.hessian, options);
    expect_usable(result);
    EXPECT_EQ(result.loss, 0.0);
    EXPECT_EQ(result.relative_error, 0.0);
  }
}

TEST(Solve, ExtremeButFiniteMagnitudes) {
  for (const float factor : {0x1p-100f, 0x1p-60f, 0x1p40f, 0x1p55f}) {
    Problem problem(8, 64, 200, 13);
    for (float& value : problem.weight) value *= factor;
    for (const SolveOptions& options : {stock_options(false), rtn_mse_options(ScaleSign::kAny)}) {
      expect_usable(solve(problem.input, kNoHessian, options));
    }
  }
  const Problem plain(8, 64, 200, 13);
  const SolveResult reference = solve(plain.input, plain.hessian, trefoil_options(0.01));
  Problem scaled(8, 64, 200, 13);
  for (float& value : scaled.weight) value *= 0x1p-40f;
  for (float& value : scaled.hessian) value *= 0x1p30f;
  EXPECT_EQ(solve(scaled.input, scaled.hessian, trefoil_options(0.01)).q.codes, reference.q.codes)
      << "powers of two change nothing";
}

TEST(Solve, NoRowsAndNarrowGroups) {
  Problem problem(3, 96, 200, 14, 32);
  for (const SolveOptions& options : kAllRecipes) expect_usable(solve(problem.input, problem.hessian, options));
  problem.input.rows = 0;
  problem.input.weight = {};
  const SolveResult none = solve(problem.input, problem.hessian, trefoil_options(0.01));
  EXPECT_TRUE(none.q.codes.empty());
  EXPECT_EQ(none.loss, 0.0);
}

TEST(Solve, OtherBitWidths) {
  double last = std::numeric_limits<double>::infinity();
  for (const int bits : {2, 3, 4, 8}) {
    Problem problem(32, 128, 500, 15);
    problem.input.num_bits = bits;
    const SolveResult result = solve(problem.input, problem.hessian, trefoil_options(0.01));
    expect_usable(result);
    EXPECT_LT(result.loss, 0.5 * last) << bits;
    last = result.loss;
  }
}

TEST(Solve, RankDeficientAndIndefiniteHessiansFallBackAndSaySo) {
  Problem problem(16, 64, 3, 16);
  const SolveResult thin =
      solve(problem.input, problem.hessian, trefoil_options(0.01));  // rank 3, damping makes it definite
  EXPECT_EQ(thin.fallback, Fallback::kNone);
  expect_usable(thin);

  SolveOptions undamped = trefoil_options(1e-12);
  const SolveResult ladder = solve(problem.input, problem.hessian, undamped);
  EXPECT_NE(ladder.fallback, Fallback::kNone);
  EXPECT_FALSE(ladder.fallback_reason.empty());
  expect_usable(ladder);

  std::vector<float> indefinite(64 * 64, 1.0f);  // off-diagonal far above the diagonal
  for (size_t j = 0; j < 64; ++j) indefinite[j * 65] = 0.1f;
  const SolveResult identity = solve(problem.input, indefinite, trefoil_options(0.01));
  EXPECT_EQ(identity.fallback, Fallback::kIdentity);
  EXPECT_EQ(identity.q.codes, solve(problem.input, kNoHessian, rtn_mse_options(ScaleSign::kAny)).q.codes);
  const SolveResult published = solve(problem.input, indefinite, stock_options(false));
  EXPECT_EQ(published.q.codes, solve(problem.input, kNoHessian, rtn_options()).q.codes);
}

TEST(Solve, TheLadderRaisesDampingBeforeGivingUp) {
  Problem problem(16, 64, 200, 17);
  // One eigenvalue of about -0.5 times the mean diagonal: too much for damping 0.01 and 0.1, not for 1.
  double mean = 0;
  for (size_t j = 0; j < 64; ++j) mean += static_cast<double>(problem.hessian[j * 65]) / 64;
  std::vector<float> hessian(64 * 64, 0.0f);
  for (size_t j = 0; j < 64; ++j) hessian[j * 65] = static_cast<float>(mean);
  hessian[1] = hessian[64] = static_cast<float>(1.5 * mean);
  const SolveResult result = solve(problem.input, hessian, trefoil_options(0.01));
  EXPECT_EQ(result.fallback, Fallback::kMoreDamping);
  EXPECT_NEAR(result.damping_frac_used, 1.0, 1e-12);
}

TEST(Solve, DoublePrecisionWhenSingleIsNotEnough) {
  // Two nearly equal strong channels: the exact pivots are the damping, far below f32 resolution of the diagonal.
  const Problem problem(8, 64, 200, 18);
  std::vector<float> hessian(64 * 64, 0.0f);
  for (size_t j = 0; j < 64; ++j) hessian[j * 65] = 1.0f;
  for (size_t i = 0; i < 32; ++i) {
    for (size_t j = 0; j < 32; ++j) hessian[i * 64 + j] = 1.0f;
  }
  const SolveResult result = solve(problem.input, hessian, trefoil_options(1e-8));
  EXPECT_EQ(result.fallback, Fallback::kDoublePrecision);
  EXPECT_NEAR(result.damping_frac_used, 1e-8, 1e-15);
  expect_usable(result);
}

TEST(Solve, NaNAndInfinityAreRefusedByName) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const SolveOptions& options : kAllRecipes) {
      Problem weight(4, 128, 100, 19);
      weight.weight[128 + 5] = bad;
      EXPECT_THAT(error_of([&] { solve(weight.input, weight.hessian, options); }, ErrorCode::kCorrupt),
                  ::testing::HasSubstr("weight [1, 5]"));
      Problem hessian(4, 128, 100, 19);
      hessian.hessian[7 * 128 + 9] = bad;
      EXPECT_THAT(error_of([&] { solve(hessian.input, hessian.hessian, options); }, ErrorCode::kCorrupt),
                  ::testing::HasSubstr("(7, 9)"));
    }
  }
  Problem negative(4, 128, 100, 19);
  negative.hessian[0] = -1.0f;
  error_of([&] { solve(negative.input, negative.hessian, trefoil_options(0.01)); }, ErrorCode::kCorrupt);
  Problem huge(4, 128, 100, 19);
  huge.weight[3] = 3e38f;
  error_of([&] { solve(huge.input, huge.hessian, stock_options(false)); }, ErrorCode::kCorrupt);
  Problem overflow(4, 128, 100, 19);
  for (float& value : overflow.hessian) value *= 0x1p80f;
  error_of([&] { solve(overflow.input, overflow.hessian, trefoil_options(0.01)); }, ErrorCode::kCorrupt);
}

TEST(Solve, WrongSizesAreRefused) {
  Problem problem(4, 128, 100, 20);
  problem.input.group_size = 48;
  error_of([&] { solve(problem.input, problem.hessian, trefoil_options(0.01)); }, ErrorCode::kInvalidArgument);
  problem.input.group_size = 64;
  problem.input.num_bits = 9;
  error_of([&] { solve(problem.input, problem.hessian, trefoil_options(0.01)); }, ErrorCode::kInvalidArgument);
  problem.input.num_bits = 3;
  error_of([&] { solve(problem.input, problem.hessian, trefoil_options(-1.0)); }, ErrorCode::kInvalidArgument);
}

TEST(Solve, MeasuresAgainstTheTarget) {
  const Problem problem(16, 128, 400, 21);
  std::vector<float> target = problem.weight;
  for (size_t i = 0; i < target.size(); ++i) target[i] += 0.01f * static_cast<float>(i % 7);
  SolveInput input = problem.input;
  input.target = target;
  const SolveResult result = solve(input, problem.hessian, trefoil_options(0.01));
  const double exact = exact_loss(target, result.q, problem.hessian);
  EXPECT_NEAR(result.loss, exact, 1e-6 * exact);
  EXPECT_LT(result.loss, exact_loss(problem.weight, result.q, problem.hessian));
}

TEST(Solve, LossesOfTinyInputsAreNotDrownedByDeadColumns) {
  Problem problem(16, 128, 400, 23);
  for (float& value : problem.hessian) value *= 1e-7f;
  for (int64_t i = 0; i < 128; ++i) {
    for (int64_t j = 0; j < 128; ++j) {
      if (i < 64 || j < 64) problem.hessian[static_cast<size_t>(i * 128 + j)] = 0.0f;
    }
  }
  const SolveResult stock = solve(problem.input, problem.hessian, stock_options(false));
  const double exact = exact_loss(problem.weight, stock.q, problem.hessian);
  EXPECT_GT(exact, 0);
  EXPECT_NEAR(stock.loss, exact, 1e-6 * exact);
}

TEST(Solve, WideMatrix) {
  const Problem problem(5, 3072, 256, 22);
  const SolveResult stock = solve(problem.input, problem.hessian, stock_options(false));
  const SolveResult trefoil = solve(problem.input, problem.hessian, trefoil_options(0.1));
  expect_usable(trefoil);
  EXPECT_NEAR(stock.loss, exact_loss(problem.weight, stock.q, problem.hessian), 1e-5 * stock.loss) << "from the sweep";
  EXPECT_LT(trefoil.objective, stock.objective + 1e300);  // different damping: only that both are finite
}

}  // namespace
}  // namespace trefoil
