// prepare_hessian: damping, processing order and the factor N of gptq.h, with the ladder of fallbacks.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "quantize/linalg.h"
#include "quantize/solve.h"

namespace trefoil {
namespace {

constexpr float kLargestDiagonal = 0x1p60f;  // an input of 2^30; the solver's products stay in f32 below it
constexpr int kDampingSteps = 3;             // x10, x100, x1000

void check_hessian(std::span<const float> hessian, int64_t cols) {
  for (int64_t i = 0; i < cols; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const float value = hessian[static_cast<size_t>(i * cols + j)];
      if (!std::isfinite(value))
        fail(ErrorCode::kCorrupt, "Hessian entry ({}, {}) is {}, expected a finite number", i, j, value);
    }
    const float diagonal = hessian[static_cast<size_t>(i * cols + i)];
    if (diagonal > kLargestDiagonal)
      fail(ErrorCode::kCorrupt, "Hessian diagonal {} is {}: inputs too large", i, diagonal);
    if (diagonal < 0) fail(ErrorCode::kCorrupt, "Hessian diagonal {} is {}, expected a sum of squares", i, diagonal);
  }
}

std::vector<int64_t> processing_order(const std::vector<float>& diagonal, bool static_order) {
  std::vector<int64_t> order(diagonal.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (static_order) {
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return diagonal[static_cast<size_t>(a)] > diagonal[static_cast<size_t>(b)];
    });
  }
  return order;
}

// The damped Hessian with rows and columns in reverse processing order: its Cholesky factor, read backwards, is the
// upper factor R of H = R R^T.
template <typename T>
std::vector<T> reversed_hessian(const PreparedHessian& prepared, const std::vector<float>& diagonal, double damping) {
  const int64_t n = prepared.cols;
  std::vector<T> reversed(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from_row = prepared.order[static_cast<size_t>(n - 1 - i)];
    const float* row = prepared.hessian.data() + from_row * n;
    T* to = reversed.data() + i * n;
    for (int64_t j = 0; j < i; ++j) to[j] = static_cast<T>(row[prepared.order[static_cast<size_t>(n - 1 - j)]]);
    to[i] = static_cast<T>(static_cast<double>(diagonal[static_cast<size_t>(from_row)]) + damping);
  }
  return reversed;
}

// Fills unit_upper and pivots. False when the factorization fails or lost so much precision that a pivot is below what
// damping alone guarantees (every exact pivot is at least `damping`).
template <typename T>
bool factorize(PreparedHessian& prepared, const std::vector<float>& diagonal, double damping) {
  const int64_t n = prepared.cols;
  std::vector<T> factor = reversed_hessian<T>(prepared, diagonal, damping);
  if (!cholesky_lower(n, factor.data(), n)) return false;
  for (int64_t i = 0; i < n; ++i) {
    const auto root = static_cast<double>(factor[static_cast<size_t>(i * n + i)]);
    if (root * root < 0.5 * damping) return false;
  }
  std::reverse(factor.begin(), factor.end());  // turning the matrix by 180 degrees reverses its elements
  prepared.pivots.resize(static_cast<size_t>(n));
  prepared.unit_upper.assign(static_cast<size_t>(n * n), 0.0f);
  std::vector<T> roots(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    const T root = roots[static_cast<size_t>(j)] = factor[static_cast<size_t>(j * n + j)];
    prepared.pivots[static_cast<size_t>(j)] = static_cast<float>(root * root);
  }
  for (int64_t i = 0; i < n; ++i) {
    float* to = prepared.unit_upper.data() + i * n;
    to[i] = 1.0f;
    const T* from = factor.data() + i * n;
    for (int64_t j = i + 1; j < n; ++j) to[j] = static_cast<float>(from[j] / roots[static_cast<size_t>(j)]);
  }
  return true;
}

// U_ik / U_ii with U = R^-1 and R = N D^(1/2): the row-scaled inverse of N is all that is needed, since
// U = D^(-1/2) N^-1 and U_ii = D_ii^(-1/2). Negated, so that the sweep adds it.
bool fill_compensation(PreparedHessian& prepared) {
  prepared.compensation = prepared.unit_upper;
  if (!invert_upper(prepared.cols, prepared.compensation.data(), prepared.cols)) return false;
  for (float& value : prepared.compensation) value = -value;
  return true;
}

void use_identity(PreparedHessian& prepared, std::string reason) {
  prepared.fallback = Fallback::kIdentity;
  prepared.fallback_reason = std::move(reason);
  prepared.damping = prepared.damping_frac_used = 0;
  std::fill(prepared.damped_diagonal.begin(), prepared.damped_diagonal.end(), 1.0f);
  prepared.unit_upper.clear();
  prepared.pivots.clear();
}

bool climb_ladder(PreparedHessian& prepared, const std::vector<float>& diagonal, double mean,
                  const SolveOptions& options) {
  double frac = options.dampening_frac;
  for (int step = 0; step <= (options.damping_ladder ? kDampingSteps : 0); ++step, frac *= 10) {
    const double damping = frac * mean;
    const bool single = factorize<float>(prepared, diagonal, damping);
    if (!single && !factorize<double>(prepared, diagonal, damping)) continue;
    prepared.damping = damping;
    prepared.damping_frac_used = frac;
    if (step > 0) {
      prepared.fallback = Fallback::kMoreDamping;
      prepared.fallback_reason =
          fmt::format("not positive definite at damping {}, factorized at {}", options.dampening_frac, frac);
    } else if (!single) {
      prepared.fallback = Fallback::kDoublePrecision;
      prepared.fallback_reason = fmt::format("f32 factorization failed at damping {}, f64 succeeded", frac);
    }
    return true;
  }
  return false;
}

}  // namespace

const char* to_string(Fallback fallback) {
  switch (fallback) {
    case Fallback::kNone:
      return "none";
    case Fallback::kDoublePrecision:
      return "double-precision";
    case Fallback::kMoreDamping:
      return "more-damping";
    case Fallback::kIdentity:
      return "identity";
  }
  return "unknown";
}

PreparedHessian prepare_hessian(std::span<const float> hessian, int64_t cols, const SolveOptions& options) {
  if (cols <= 0) fail(ErrorCode::kInvalidArgument, "{} columns, expected at least 1", cols);
  if (!(options.dampening_frac >= 0) || !std::isfinite(options.dampening_frac)) {
    fail(ErrorCode::kInvalidArgument, "dampening_frac is {}, expected a finite number >= 0", options.dampening_frac);
  }
  PreparedHessian prepared;
  prepared.cols = cols;
  prepared.damped_diagonal.resize(static_cast<size_t>(cols), 1.0f);
  std::vector<float> diagonal(static_cast<size_t>(cols), 0.0f);
  if (!hessian.empty()) {
    TREFOIL_CHECK(static_cast<int64_t>(hessian.size()) == cols * cols);
    check_hessian(hessian, cols);
    prepared.hessian = hessian;
    for (int64_t j = 0; j < cols; ++j) diagonal[static_cast<size_t>(j)] = hessian[static_cast<size_t>(j * cols + j)];
  }
  prepared.order = processing_order(diagonal, options.static_order);
  prepared.dead_columns = std::count(diagonal.begin(), diagonal.end(), 0.0f);
  if (prepared.dead_columns == cols) {
    use_identity(prepared, hessian.empty() ? "no Hessian" : "Hessian is zero: no tokens, or only zero inputs");
    return prepared;
  }
  if (options.dead_diagonal_is_one) std::replace(diagonal.begin(), diagonal.end(), 0.0f, 1.0f);
  double mean = 0;
  for (const float value : diagonal) mean += value;
  mean /= static_cast<double>(cols);

  if (options.gptq && !climb_ladder(prepared, diagonal, mean, options)) {
    use_identity(prepared, fmt::format("no factorization from damping {} upwards", options.dampening_frac));
    return prepared;
  }
  if (!options.gptq) {
    prepared.damping = options.dampening_frac * mean;
    prepared.damping_frac_used = options.dampening_frac;
  }
  for (size_t j = 0; j < diagonal.size(); ++j) {
    prepared.damped_diagonal[j] = static_cast<float>(static_cast<double>(diagonal[j]) + prepared.damping);
  }
  if (options.gptq && options.zero_mask && !fill_compensation(prepared))
    use_identity(prepared, "the factor is singular");
  return prepared;
}

}  // namespace trefoil
