// Estimates with their uncertainty, from values that belong to sequences. docs/evaluation.md, "Statistics".
//
// Tokens of one sequence are not independent, so a sequence is the unit: every standard error here is the one between
// sequences. A mean over tokens is the ratio of two sums over sequences (sum of values, number of tokens), and so is
// the ratio of two mean KL divergences; both take the error of a ratio estimator (the delta method),
//   R = sum_s a_s / sum_s b_s      SE(R)^2 = n / (n - 1) * sum_s (a_s - R b_s)^2 / (sum_s b_s)^2
// which for sequences of equal length is the plain standard error of the mean of the per-sequence means.
// With fewer than two sequences there is no error to state, and none is stated. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace trefoil {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

// NaN means "not available": JSON null, a dash in tables.
struct Estimate {
  double value = kNoValue;
  double standard_error = kNoValue;
};

// a, b: one entry per sequence, same length. Sequences with a = b = 0 count as not sampled. value is kNoValue when
// sum(b) = 0.
Estimate ratio_of_sums(std::span<const double> a, std::span<const double> b);

// value, and its error, through a smooth function: f(value), |f'(value)| * error.
Estimate transformed(const Estimate& estimate, double value, double slope);

// Which sequence each token belongs to. Indexes ascend from 0.
struct TokenRows {
  std::span<const int32_t> row;  // [tokens]
  int64_t num_rows = 0;
};

// Per-sequence sums of values[i] over the tokens for which `member` is empty or member[i] != 0.
std::vector<double> sum_by_row(const TokenRows& rows, std::span<const double> values,
                               std::span<const uint8_t> member = {});
std::vector<double> count_by_row(const TokenRows& rows, std::span<const uint8_t> member = {});

// Mean over (member) tokens, error by sequence.
Estimate mean_by_row(const TokenRows& rows, std::span<const double> values, std::span<const uint8_t> member = {});

// Quantiles with linear interpolation between order statistics, position (n - 1) * level (Hyndman and Fan's type 7).
// values need not be sorted; an empty span gives kNoValue.
std::vector<double> quantiles(std::span<const double> values, std::span<const double> levels);

// The same, with bootstrap errors: `replicates` times n sequences are drawn with replacement (fixed seed, so two runs
// agree to the bit), the standard deviation of the replicates' quantiles is the error.
std::vector<Estimate> quantiles_by_row(const TokenRows& rows, std::span<const double> values,
                                       std::span<const double> levels, uint64_t seed, int replicates);

// Pearson correlation; kNoValue when either side is constant.
double correlation(std::span<const double> x, std::span<const double> y);

}  // namespace trefoil
