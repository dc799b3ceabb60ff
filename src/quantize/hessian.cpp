#include "quantize/hessian.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "quantize/lanes.h"
#include "quantize/linalg.h"

namespace trefoil {
namespace {

constexpr int64_t kRun = 256;  // tokens added by one matrix product; part of the result, not a tuning knob

size_t square(int64_t dim) {
  return static_cast<size_t>(dim) * static_cast<size_t>(dim);
}

float checked_weight(std::span<const float> weights, int64_t token) {
  if (weights.empty()) return 1.0f;
  const float weight = weights[static_cast<size_t>(token)];
  if (!(weight >= 0.0f) || !std::isfinite(weight)) {
    fail(ErrorCode::kCorrupt, "calibration weight of token {} is {}, expected a finite number >= 0", token, weight);
  }
  return weight;
}

void check_row_finite(std::span<const float> row, int64_t token, const char* stream) {
  constexpr uint32_t kExponent = 0x7F800000u;
  uint32_t bad = 0;
  for (const float value : row) bad |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
  if (bad == 0) return;
  const auto column = std::find_if(row.begin(), row.end(), [](float value) { return !std::isfinite(value); });
  fail(ErrorCode::kCorrupt, "{} input {} of token {} is {}, expected a finite number", stream,
       std::distance(row.begin(), column), token, *column);
}

double trace(std::span<const float> matrix, int64_t dim) {
  double sum = 0;
  for (int64_t i = 0; i < dim; ++i) sum += static_cast<double>(matrix[static_cast<size_t>(i * dim + i)]);
  return sum;
}

}  // namespace

HessianAccumulator::HessianAccumulator(int64_t dim)
    : dim_(dim), buffer_(static_cast<size_t>(kRun * dim)), lower_(square(dim), 0.0f) {}

void HessianAccumulator::add(std::span<const float> x, std::span<const float> weights) {
  const auto dim = static_cast<size_t>(dim_);
  TREFOIL_CHECK(x.size() % dim == 0);
  const auto tokens = static_cast<int64_t>(x.size() / dim);
  TREFOIL_CHECK(weights.empty() || static_cast<int64_t>(weights.size()) == tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    const std::span<const float> row = x.subspan(static_cast<size_t>(t) * dim, dim);
    const float weight = checked_weight(weights, t);
    check_row_finite(row, tokens_, "calibration");
    ++tokens_;
    if (weight == 0.0f) continue;
    weight_sum_ += weight;
    weight_square_sum_ += static_cast<double>(weight) * weight;
    const float root = std::sqrt(weight);
    float* to = buffer_.data() + static_cast<size_t>(buffered_) * dim;
    for (size_t j = 0; j < dim; ++j) to[j] = root * row[j];
    if (++buffered_ == kRun) flush();
  }
}

void HessianAccumulator::flush() {
  if (buffered_ > 0) syrk_lower(dim_, buffered_, buffer_.data(), dim_, lower_.data(), dim_);
  buffered_ = 0;
}

double HessianAccumulator::effective_tokens() const {
  return weight_square_sum_ > 0 ? weight_sum_ * weight_sum_ / weight_square_sum_ : 0.0;
}

std::vector<float> HessianAccumulator::mean() {
  // The buffer is added to a copy, so that asking for the mean does not change what a later call returns.
  std::vector<float> full = lower_;
  if (buffered_ > 0) syrk_lower(dim_, buffered_, buffer_.data(), dim_, full.data(), dim_);
  const double factor = weight_sum_ > 0 ? 1.0 / weight_sum_ : 0.0;
  constexpr int64_t kTile = 64;  // a tile and its mirror image fit the cache together
  for (int64_t row = 0; row < dim_; row += kTile) {
    for (int64_t col = 0; col <= row; col += kTile) finish_tile(full, factor, row, col, kTile);
  }
  return full;
}

// Divides a tile of the lower triangle and mirrors it.
void HessianAccumulator::finish_tile(std::vector<float>& full, double factor, int64_t row, int64_t col,
                                     int64_t tile) const {
  for (int64_t i = row; i < std::min(row + tile, dim_); ++i) {
    for (int64_t j = col; j < std::min(col + tile, i + 1); ++j) {
      const auto value = static_cast<float>(static_cast<double>(full[static_cast<size_t>(i * dim_ + j)]) * factor);
      if (!std::isfinite(value)) fail(ErrorCode::kCorrupt, "Hessian entry ({}, {}) overflowed: inputs too large", i, j);
      full[static_cast<size_t>(i * dim_ + j)] = value;
      full[static_cast<size_t>(j * dim_ + i)] = value;
    }
  }
}

CrossAccumulator::CrossAccumulator(int64_t dim)
    : dim_(dim),
      difference_(static_cast<size_t>(kRun * dim)),
      input_(static_cast<size_t>(kRun * dim)),
      sum_(square(dim), 0.0f) {}

void CrossAccumulator::add(std::span<const float> original, std::span<const float> quantized,
                           std::span<const float> weights) {
  const auto dim = static_cast<size_t>(dim_);
  TREFOIL_CHECK(original.size() == quantized.size() && original.size() % dim == 0);
  const auto tokens = static_cast<int64_t>(original.size() / dim);
  TREFOIL_CHECK(weights.empty() || static_cast<int64_t>(weights.size()) == tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    const auto from = original.subspan(static_cast<size_t>(t) * dim, dim),
               to = quantized.subspan(static_cast<size_t>(t) * dim, dim);
    const float weight = checked_weight(weights, t);
    check_row_finite(from, tokens_, "original");
    check_row_finite(to, tokens_, "quantized");
    ++tokens_;
    if (weight == 0.0f) continue;
    weight_sum_ += weight;
    float* difference = difference_.data() + static_cast<size_t>(buffered_) * dim;
    for (size_t j = 0; j < dim; ++j) difference[j] = weight * (from[j] - to[j]);
    std::copy(to.begin(), to.end(), input_.begin() + static_cast<int64_t>(static_cast<size_t>(buffered_) * dim));
    if (++buffered_ == kRun) flush();
  }
}

void CrossAccumulator::flush() {
  if (buffered_ > 0) {
    gemm(Transpose::kYes, Transpose::kNo, dim_, dim_, buffered_, 1.0f, difference_.data(), dim_, input_.data(), dim_,
         1.0f, sum_.data(), dim_);
  }
  buffered_ = 0;
}

std::vector<float> CrossAccumulator::mean() {
  std::vector<float> out = sum_;
  if (buffered_ > 0) {
    gemm(Transpose::kYes, Transpose::kNo, dim_, dim_, buffered_, 1.0f, difference_.data(), dim_, input_.data(), dim_,
         1.0f, out.data(), dim_);
  }
  const double factor = weight_sum_ > 0 ? 1.0 / weight_sum_ : 0.0;
  for (float& value : out) {
    value = static_cast<float>(static_cast<double>(value) * factor);
    if (!std::isfinite(value))
      fail(ErrorCode::kCorrupt, "cross moment of the two streams overflowed: inputs too large");
  }
  return out;
}

double shrinkage_lambda(int64_t dim, double effective_tokens, double trust) {
  return static_cast<double>(dim) / (static_cast<double>(dim) + trust * effective_tokens);
}

void shrink_towards(std::span<float> hessian, std::span<const float> shared, int64_t dim, double lambda) {
  TREFOIL_CHECK(hessian.size() == square(dim) && shared.size() == square(dim));
  const double own_trace = trace(hessian, dim), shared_trace = trace(shared, dim);
  if (!(shared_trace > 0)) return;
  if (!(own_trace > 0)) {
    std::copy(shared.begin(), shared.end(), hessian.begin());
    return;
  }
  const auto keep = static_cast<float>(1.0 - lambda), take = static_cast<float>(lambda * own_trace / shared_trace);
  for (size_t i = 0; i < hessian.size(); ++i) hessian[i] = keep * hessian[i] + take * shared[i];
}

double dampening_after_shrinkage(double lambda, double least) {
  return std::max(least, 0.2 * lambda);
}
double dampening_without_target(double lambda, double least) {
  return std::max(least, lambda);
}

std::vector<float> mismatch_map(std::vector<float> cross, std::span<const float> hessian, int64_t dim, double ridge) {
  TREFOIL_CHECK(cross.size() == square(dim) && hessian.size() == square(dim));
  const double mean_diagonal = trace(hessian, dim) / static_cast<double>(dim);
  if (!(mean_diagonal > 0)) return {};
  std::vector<float> factor(hessian.begin(), hessian.end());
  for (int64_t i = 0; i < dim; ++i)
    factor[static_cast<size_t>(i * dim + i)] += static_cast<float>(ridge * mean_diagonal);
  if (!cholesky_lower(dim, factor.data(), dim)) return {};
  cholesky_solve_right(dim, dim, factor.data(), dim, cross.data(), dim);
  return cross;
}

std::vector<float> mismatch_target(std::span<const float> weight, std::span<const float> map, int64_t rows, int64_t dim,
                                   double alpha) {
  TREFOIL_CHECK(static_cast<int64_t>(weight.size()) == rows * dim && (map.empty() || map.size() == square(dim)));
  std::vector<float> target(weight.begin(), weight.end());
  if (alpha == 0.0 || map.empty()) return target;
  gemm(Transpose::kNo, Transpose::kNo, rows, dim, dim, static_cast<float>(alpha), weight.data(), dim, map.data(), dim,
       1.0f, target.data(), dim);
  for (size_t i = 0; i < target.size(); ++i) {
    if (!std::isfinite(target[i])) fail(ErrorCode::kCorrupt, "mismatch target is not finite at element {}", i);
  }
  return target;
}

namespace {

// sums[r] += sum_k a[k, r] b[k, r]; a, b: [count, rows].
void add_column_products(const float* a, const float* b, int64_t count, int64_t rows, double* sums) {
  using lanes::kLanes;
  for (int64_t r = 0; r < rows; r += kLanes) {
    double sum[kLanes] = {};  // in registers
    for (int64_t k = 0; k < count; ++k) {
      const float *x = a + k * rows + r, *y = b + k * rows + r;
      for (int l = 0; l < kLanes; ++l) sum[l] += static_cast<double>(x[l]) * static_cast<double>(y[l]);
    }
    for (int l = 0; l < kLanes; ++l) sums[r + l] += sum[l];
  }
}

}  // namespace

// H is symmetric: with its columns in blocks, blocks left of the diagonal stand for those above it as well.
std::vector<double> row_losses(std::span<const float> error, std::span<const float> hessian, int64_t rows,
                               int64_t dim) {
  TREFOIL_CHECK(static_cast<int64_t>(error.size()) == rows * dim && hessian.size() == square(dim));
  TREFOIL_CHECK(rows % lanes::kLanes == 0);
  std::vector<double> losses(static_cast<size_t>(rows), 0.0);
  if (rows == 0) return losses;
  std::vector<float> product(static_cast<size_t>(std::min(kLossTerms, dim) * rows));
  for (int64_t i = 0; i < dim; i += kLossTerms) {
    const int64_t height = std::min(kLossTerms, dim - i);
    for (int64_t j = 0; j <= i; j += kLossTerms) {
      const int64_t width = std::min(kLossTerms, dim - j);
      gemm(Transpose::kNo, Transpose::kNo, height, rows, width, i == j ? 1.0f : 2.0f, hessian.data() + i * dim + j, dim,
           error.data() + j * rows, rows, 0.0f, product.data(), rows);
      add_column_products(error.data() + i * rows, product.data(), height, rows, losses.data());
    }
  }
  return losses;
}

}  // namespace trefoil
