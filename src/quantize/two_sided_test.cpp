#include "quantize/two_sided.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "quantize/solver_test_data.h"

namespace trefoil {
namespace {

using solver_test::correlated_inputs;
using solver_test::gaussian;
using solver_test::hessian_of;
using solver_test::mxfp4_like_weights;

constexpr int64_t kRows = 48, kCols = 128, kOut = 96;

// A^T A / kOut of a random [kOut, kRows] map: what stands behind a Linear.
std::vector<float> random_metric(int64_t rows, uint32_t seed) {
  const std::vector<float> map = gaussian(kOut * rows, seed);
  std::vector<float> metric(static_cast<size_t>(rows * rows), 0.0f);
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < rows; ++j)
        metric[static_cast<size_t>(i * rows + j)] +=
            map[static_cast<size_t>(o * rows + i)] * map[static_cast<size_t>(o * rows + j)] / kOut;
    }
  }
  return metric;
}

std::vector<float> identity(int64_t rows) {
  std::vector<float> metric(static_cast<size_t>(rows * rows), 0.0f);
  for (int64_t i = 0; i < rows; ++i) metric[static_cast<size_t>(i * rows + i)] = 1.0f;
  return metric;
}

// tr(G E H E^T) straight from the definition, in f64.
double loss_of(const QuantizedMatrix& q, const std::vector<float>& weight, const std::vector<float>& metric,
               const std::vector<float>& hessian) {
  const std::vector<float> value = dequantize(q);
  std::vector<double> error(value.size());
  for (size_t i = 0; i < value.size(); ++i) error[i] = static_cast<double>(weight[i]) - static_cast<double>(value[i]);
  double total = 0;
  for (int64_t r = 0; r < q.rows; ++r) {
    for (int64_t j = 0; j < q.cols; ++j) {
      double left = 0, right = 0;
      for (int64_t i = 0; i < q.rows; ++i)
        left += static_cast<double>(metric[static_cast<size_t>(r * q.rows + i)]) *
                error[static_cast<size_t>(i * q.cols + j)];
      for (int64_t k = 0; k < q.cols; ++k)
        right += static_cast<double>(hessian[static_cast<size_t>(j * q.cols + k)]) *
                 error[static_cast<size_t>(r * q.cols + k)];
      total += left * right;
    }
  }
  return total;
}

struct Problem {
  std::vector<float> weight = mxfp4_like_weights(kRows, kCols, 1);
  std::vector<float> hessian = hessian_of(correlated_inputs(1024, kCols, 2), kCols);
  std::vector<float> metric = random_metric(kRows, 3);
  SolveOptions options = trefoil_options(0.01);
  SolveInput input() const { return {kRows, kCols, 64, 3, weight, {}}; }
  PreparedHessian prepared() const { return prepare_hessian(hessian, kCols, options); }
};

TEST(TwoSided, CostsLessBehindTheMetricThanTheOneSidedSolve) {
  const Problem p;
  const PreparedHessian prepared = p.prepared();
  const SolveResult one = solve(p.input(), prepared, p.options);
  const SolveResult two = solve_two_sided(p.input(), prepared, prepare_output_metric(p.metric, kRows, 0.01), p.options);
  const double before = loss_of(one.q, p.weight, p.metric, p.hessian);
  const double after = loss_of(two.q, p.weight, p.metric, p.hessian);
  EXPECT_LT(after, 0.85 * before);  // eigenvalues of a 96 x 48 Wishart matrix: geometric over arithmetic mean is 0.74
  EXPECT_GT(after, 0.3 * before);
}

TEST(TwoSided, RefinementLowersTheExactObjective) {
  Problem p;
  const OutputMetric metric = prepare_output_metric(p.metric, kRows, 0.01);
  const PreparedHessian prepared = p.prepared();
  SolveOptions sweep_only = p.options;
  sweep_only.refine_rounds = 0;
  const SolveResult swept = solve_two_sided(p.input(), prepared, metric, sweep_only);
  const SolveResult refined = solve_two_sided(p.input(), prepared, metric, p.options);
  EXPECT_GT(refined.refine_rounds_kept, 0);
  EXPECT_LT(refined.objective, refined.objective_before_refine);
  EXPECT_NEAR(refined.objective_before_refine, swept.objective, 1e-6 * swept.objective);
  EXPECT_LT(loss_of(refined.q, p.weight, p.metric, p.hessian), loss_of(swept.q, p.weight, p.metric, p.hessian));
}

TEST(TwoSided, ReportsTheObjectiveOfItsDefinition) {
  const Problem p;
  const PreparedHessian prepared = p.prepared();
  const SolveResult two = solve_two_sided(p.input(), prepared, prepare_output_metric(p.metric, kRows, 0.01), p.options);
  std::vector<float> metric = p.metric, hessian = p.hessian;
  double mean = 0;
  for (int64_t i = 0; i < kRows; ++i) mean += static_cast<double>(metric[static_cast<size_t>(i * kRows + i)]) / kRows;
  for (int64_t i = 0; i < kRows; ++i) metric[static_cast<size_t>(i * kRows + i)] += static_cast<float>(0.01 * mean);
  for (int64_t j = 0; j < kCols; ++j)
    hessian[static_cast<size_t>(j * kCols + j)] = prepared.damped_diagonal[static_cast<size_t>(j)];
  const double exact = loss_of(two.q, p.weight, metric, hessian);
  EXPECT_NEAR(two.objective, exact, 1e-4 * exact);
}

TEST(TwoSided, WithAnIdentityMetricSweepsAsTheOneSidedSolve) {
  Problem p;
  p.options.refine_rounds = 0;
  const PreparedHessian prepared = p.prepared();
  const SolveResult one = solve(p.input(), prepared, p.options);
  const SolveResult two =
      solve_two_sided(p.input(), prepared, prepare_output_metric(identity(kRows), kRows, 0.0), p.options);
  EXPECT_EQ(one.q.codes, two.q.codes);
  EXPECT_EQ(one.q.scale, two.q.scale);
  EXPECT_NEAR(one.loss, two.loss, 1e-6 * one.loss) << "summed by the sweep, and measured";
}

TEST(TwoSided, IsDeterministicAndTakesRowCountsThatAreNoMultipleOfLanes) {
  for (const int64_t rows : {1, 7, 17, 48}) {
    const std::vector<float> weight = mxfp4_like_weights(rows, kCols, 5);
    const Problem p;
    const PreparedHessian prepared = p.prepared();
    const OutputMetric metric = prepare_output_metric(random_metric(rows, 6), rows, 0.01);
    const SolveInput input{rows, kCols, 64, 3, weight, {}};
    const SolveResult a = solve_two_sided(input, prepared, metric, p.options);
    const SolveResult b = solve_two_sided(input, prepared, metric, p.options);
    EXPECT_EQ(a.q.codes, b.q.codes);
    for (const int8_t code : a.q.codes) ASSERT_TRUE(code >= -4 && code <= 3);
  }
}

TEST(TwoSided, SurvivesDegenerateMetricsAndHessians) {
  const Problem p;
  const PreparedHessian none = prepare_hessian({}, kCols, p.options);
  const OutputMetric zero = prepare_output_metric(std::vector<float>(kRows * kRows, 0.0f), kRows, 0.01);
  EXPECT_EQ(solve_two_sided(p.input(), none, zero, p.options).q.codes.size(), p.weight.size());
  std::vector<float> rank_one(kRows * kRows, 1.0f);
  const SolveResult result =
      solve_two_sided(p.input(), p.prepared(), prepare_output_metric(rank_one, kRows, 0.01), p.options);
  EXPECT_TRUE(std::isfinite(result.objective));
  std::vector<float> bad = p.metric;
  bad[5] = std::nanf("");
  EXPECT_THROW(prepare_output_metric(bad, kRows, 0.01), Error);
}

}  // namespace
}  // namespace trefoil
