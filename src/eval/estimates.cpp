#include "eval/estimates.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace trefoil {
namespace {

// Two neighbouring order statistics and the weight of the upper one.
struct QuantilePosition {
  int64_t rank = 0;
  double fraction = 0;
};

QuantilePosition position_of(double level, int64_t count) {
  const double exact = static_cast<double>(count - 1) * level;
  const int64_t rank = std::min(static_cast<int64_t>(exact), count - 1);
  return {rank, exact - static_cast<double>(rank)};
}

double interpolate(double low, double high, double fraction) {
  return fraction == 0 ? low : low + fraction * (high - low);
}

// Values in ascending order, each with the sequence it came from.
struct SortedValues {
  std::vector<double> value;
  std::vector<int32_t> row;
};

SortedValues sort_values(const TokenRows& rows, std::span<const double> values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const double va = values[static_cast<size_t>(a)], vb = values[static_cast<size_t>(b)];
    return va < vb || (va == vb && a < b);
  });
  SortedValues sorted;
  sorted.value.reserve(order.size());
  sorted.row.reserve(order.size());
  for (int64_t i : order) {
    sorted.value.push_back(values[static_cast<size_t>(i)]);
    sorted.row.push_back(rows.row[static_cast<size_t>(i)]);
  }
  return sorted;
}

// Quantiles of the sample in which every value counts weight[row] times. `levels` in ascending order.
std::vector<double> weighted_quantiles(const SortedValues& sorted, std::span<const int32_t> weight,
                                       std::span<const double> levels) {
  int64_t total = 0;
  for (int32_t row : sorted.row) total += weight[static_cast<size_t>(row)];
  std::vector<double> result(levels.size(), kNoValue);
  if (total == 0) return result;
  int64_t seen = 0;  // copies up to and including entry i
  size_t next = 0;   // level being looked for
  double low = kNoValue;
  bool have_low = false;
  for (size_t i = 0; i < sorted.value.size() && next < levels.size(); ++i) {
    seen += weight[static_cast<size_t>(sorted.row[i])];
    while (next < levels.size()) {
      const QuantilePosition at = position_of(levels[next], total);
      if (!have_low && seen > at.rank) low = sorted.value[i], have_low = true;
      if (seen <= std::min(at.rank + 1, total - 1)) break;
      result[next++] = interpolate(low, sorted.value[i], at.fraction);
      have_low = false;
    }
  }
  return result;
}

}  // namespace

Estimate ratio_of_sums(std::span<const double> a, std::span<const double> b) {
  double sum_a = 0, sum_b = 0;
  int64_t sampled = 0;
  for (size_t s = 0; s < a.size(); ++s) {
    sum_a += a[s];
    sum_b += b[s];
    sampled += a[s] != 0 || b[s] != 0;
  }
  if (sum_b == 0) return {};
  Estimate estimate{sum_a / sum_b, kNoValue};
  if (sampled < 2) return estimate;
  double squares = 0;
  for (size_t s = 0; s < a.size(); ++s) {
    const double residual = a[s] - estimate.value * b[s];
    squares += residual * residual;
  }
  const double n = static_cast<double>(sampled);
  estimate.standard_error = std::sqrt(n / (n - 1) * squares) / std::fabs(sum_b);
  return estimate;
}

Estimate transformed(const Estimate& estimate, double value, double slope) {
  return {value, std::fabs(slope) * estimate.standard_error};
}

std::vector<double> sum_by_row(const TokenRows& rows, std::span<const double> values, std::span<const uint8_t> member) {
  std::vector<double> sums(static_cast<size_t>(rows.num_rows), 0.0);
  for (size_t i = 0; i < values.size(); ++i) {
    if (member.empty() || member[i] != 0) sums[static_cast<size_t>(rows.row[i])] += values[i];
  }
  return sums;
}

std::vector<double> count_by_row(const TokenRows& rows, std::span<const uint8_t> member) {
  std::vector<double> counts(static_cast<size_t>(rows.num_rows), 0.0);
  for (size_t i = 0; i < rows.row.size(); ++i) {
    if (member.empty() || member[i] != 0) counts[static_cast<size_t>(rows.row[i])] += 1;
  }
  return counts;
}

Estimate mean_by_row(const TokenRows& rows, std::span<const double> values, std::span<const uint8_t> member) {
  return ratio_of_sums(sum_by_row(rows, values, member), count_by_row(rows, member));
}

std::vector<double> quantiles(std::span<const double> values, std::span<const double> levels) {
  std::vector<double> result(levels.size(), kNoValue);
  if (values.empty()) return result;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const int64_t count = static_cast<int64_t>(sorted.size());
  for (size_t i = 0; i < levels.size(); ++i) {
    const QuantilePosition at = position_of(levels[i], count);
    const double high = sorted[static_cast<size_t>(std::min(at.rank + 1, count - 1))];
    result[i] = interpolate(sorted[static_cast<size_t>(at.rank)], high, at.fraction);
  }
  return result;
}

std::vector<Estimate> quantiles_by_row(const TokenRows& rows, std::span<const double> values,
                                       std::span<const double> levels, uint64_t seed, int replicates) {
  const std::vector<double> point = quantiles(values, levels);
  std::vector<Estimate> result(levels.size());
  for (size_t i = 0; i < levels.size(); ++i) result[i].value = point[i];
  if (rows.num_rows < 2 || values.empty() || replicates < 2) return result;

  const SortedValues sorted = sort_values(rows, values);
  std::vector<double> sum(levels.size(), 0.0), squares(levels.size(), 0.0);
  std::mt19937_64 random(seed);
  std::vector<int32_t> weight(static_cast<size_t>(rows.num_rows));
  for (int replicate = 0; replicate < replicates; ++replicate) {
    std::fill(weight.begin(), weight.end(), 0);
    for (int64_t draw = 0; draw < rows.num_rows; ++draw) {
      // the remainder's bias is below num_rows / 2^64
      ++weight[static_cast<size_t>(random() % static_cast<uint64_t>(rows.num_rows))];
    }
    const std::vector<double> drawn = weighted_quantiles(sorted, weight, levels);
    for (size_t i = 0; i < levels.size(); ++i) {
      const double shifted = drawn[i] - point[i];  // around the point estimate, so that squares do not cancel
      sum[i] += shifted;
      squares[i] += shifted * shifted;
    }
  }
  const double n = replicates;
  for (size_t i = 0; i < levels.size(); ++i) {
    result[i].standard_error = std::sqrt(std::max(0.0, (squares[i] - sum[i] * sum[i] / n) / (n - 1)));
  }
  return result;
}

double correlation(std::span<const double> x, std::span<const double> y) {
  const double n = static_cast<double>(x.size());
  if (x.empty()) return kNoValue;
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - mean_x, dy = y[i] - mean_y;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : kNoValue;
}

}  // namespace trefoil
