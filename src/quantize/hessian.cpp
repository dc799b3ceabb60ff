#include "quantize/hessian.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "quantize/linalg.h"

namespace trefoil {
namespace {

constexpr int64_t kRun = 256;       // tokens added by one matrix product; part of the result, not a tuning knob
constexpr int64_t kLossRows = 256;  // row_losses holds so many rows of E
constexpr int64_t kLossCols = 64;   // and columns of H in f64 at a time

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
  for (size_t column = 0; column < row.size(); ++column) {
    if (!std::isfinite(row[column])) {
      fail(ErrorCode::kCorrupt, "{} input {} of token {} is {}, expected a finite number", stream, column, token,
           row[column]);
    }
  }
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
    check_row_finite(row, t, "calibration");
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
  for (int64_t i = 0; i < dim_; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const auto value = static_cast<float>(static_cast<double>(full[static_cast<size_t>(i * dim_ + j)]) * factor);
      if (!std::isfinite(value)) fail(ErrorCode::kCorrupt, "Hessian entry ({}, {}) overflowed: inputs too large", i, j);
      full[static_cast<size_t>(i * dim_ + j)] = value;
      full[static_cast<size_t>(j * dim_ + i)] = value;
    }
  }
  return full;
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
    check_row_finite(from, t, "original");
    check_row_finite(to, t, "quantized");
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

std::vector<float> mismatch_target(std::span<const float> weight, std::span<const float> cross,
                                   std::span<const float> hessian, int64_t rows, int64_t dim, double alpha,
                                   double ridge) {
  TREFOIL_CHECK(static_cast<int64_t>(weight.size()) == rows * dim && cross.size() == square(dim) &&
                hessian.size() == square(dim));
  std::vector<float> target(weight.begin(), weight.end());
  const double mean_diagonal = trace(hessian, dim) / static_cast<double>(dim);
  if (alpha == 0.0 || !(mean_diagonal > 0)) return target;
  std::vector<float> factor(hessian.begin(), hessian.end());
  for (int64_t i = 0; i < dim; ++i)
    factor[static_cast<size_t>(i * dim + i)] += static_cast<float>(ridge * mean_diagonal);
  if (!cholesky_lower(dim, factor.data(), dim)) return target;
  std::vector<float> change(weight.size());
  gemm(Transpose::kNo, Transpose::kNo, rows, dim, dim, 1.0f, weight.data(), dim, cross.data(), dim, 0.0f, change.data(),
       dim);
  cholesky_solve_right(rows, dim, factor.data(), dim, change.data(), dim);
  for (size_t i = 0; i < target.size(); ++i) {
    target[i] += static_cast<float>(alpha) * change[i];
    if (!std::isfinite(target[i])) fail(ErrorCode::kCorrupt, "mismatch target is not finite at element {}", i);
  }
  return target;
}

std::vector<double> row_losses(std::span<const float> error, std::span<const float> hessian, int64_t rows,
                               int64_t dim) {
  TREFOIL_CHECK(static_cast<int64_t>(error.size()) == rows * dim && hessian.size() == square(dim));
  std::vector<double> losses(static_cast<size_t>(rows), 0.0);
  const int64_t panel = std::min(rows, kLossRows);
  std::vector<double> e(static_cast<size_t>(panel * dim)), h(static_cast<size_t>(kLossCols * dim)),
      product(static_cast<size_t>(kLossCols * panel));
  for (int64_t row = 0; row < rows; row += panel) {
    const int64_t count = std::min(panel, rows - row);
    std::copy_n(error.begin() + row * dim, count * dim, e.begin());
    for (int64_t col = 0; col < dim; col += kLossCols) {
      const int64_t width = std::min(kLossCols, dim - col);
      std::copy_n(hessian.begin() + col * dim, width * dim, h.begin());
      gemm(Transpose::kNo, Transpose::kYes, count, width, dim, 1.0, e.data(), dim, h.data(), dim, 0.0, product.data(),
           width);
      for (int64_t r = 0; r < count; ++r) {
        double sum = 0;
        for (int64_t j = 0; j < width; ++j)
          sum += e[static_cast<size_t>(r * dim + col + j)] * product[static_cast<size_t>(r * width + j)];
        losses[static_cast<size_t>(row + r)] += sum;
      }
    }
  }
  return losses;
}

}  // namespace trefoil
