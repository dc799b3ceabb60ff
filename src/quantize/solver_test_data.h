// Synthetic Linears for the solver's tests: weights on the MXFP4 grid, inputs with a decaying spectrum, and an exact
// judge.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "quantize/hessian.h"
#include "quantize/solve.h"

namespace trefoil::solver_test {

inline std::vector<float> gaussian(int64_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(rng);
  return values;
}

// Gaussian rows snapped to E2M1 times a power of two per 32 columns: about 11 % zeros, as in the release.
inline std::vector<float> mxfp4_like_weights(int64_t rows, int64_t cols, uint32_t seed) {
  constexpr float kLevels[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  std::vector<float> weight = gaussian(rows * cols, seed);
  for (size_t start = 0; start < weight.size(); start += 32) {
    const size_t end = std::min(start + 32, weight.size());
    float absmax = 0.0f;
    for (size_t i = start; i < end; ++i) absmax = std::max(absmax, std::abs(weight[i]));
    const float unit = std::exp2(std::ceil(std::log2(absmax / 6.0f)));
    for (size_t i = start; i < end; ++i) {
      float best = 0.0f;
      for (const float level : kLevels) {
        if (std::abs(std::abs(weight[i]) / unit - level) < std::abs(std::abs(weight[i]) / unit - best)) best = level;
      }
      weight[i] = std::copysign(best * unit, weight[i]) * 0.0625f;
    }
  }
  return weight;
}

// Correlated inputs: channel j is a mixture whose strength falls off, so that H has a spread spectrum.
inline std::vector<float> correlated_inputs(int64_t tokens, int64_t dim, uint32_t seed) {
  const std::vector<float> noise = gaussian(tokens * dim, seed), spread = gaussian(dim, seed + 1);
  std::vector<float> x(noise.size());
  for (int64_t t = 0; t < tokens; ++t) {
    float carried = 0.0f;
    for (int64_t j = 0; j < dim; ++j) {
      carried = 0.8f * carried + noise[static_cast<size_t>(t * dim + j)];
      x[static_cast<size_t>(t * dim + j)] = carried * std::exp(0.4f * spread[static_cast<size_t>(j)]);
    }
  }
  return x;
}

inline std::vector<float> hessian_of(const std::vector<float>& inputs, int64_t dim) {
  HessianAccumulator accumulator(dim);
  accumulator.add(inputs, {});
  return accumulator.mean();
}

// tr((W - Q) H (W - Q)^T) by plain f64 loops.
inline double exact_loss(const std::vector<float>& weight, const QuantizedMatrix& q,
                         const std::vector<float>& hessian) {
  const std::vector<float> quantized = dequantize(q);
  double loss = 0;
  for (int64_t row = 0; row < q.rows; ++row) {
    for (int64_t i = 0; i < q.cols; ++i) {
      double product = 0;
      for (int64_t j = 0; j < q.cols; ++j) {
        const auto at = static_cast<size_t>(row * q.cols + j);
        product += (static_cast<double>(weight[at]) - static_cast<double>(quantized[at])) *
                   static_cast<double>(hessian[static_cast<size_t>(i * q.cols + j)]);
      }
      const auto at = static_cast<size_t>(row * q.cols + i);
      loss += product * (static_cast<double>(weight[at]) - static_cast<double>(quantized[at]));
    }
  }
  return loss;
}

struct Problem {
  std::vector<float> weight, inputs, hessian;
  SolveInput input;
  Problem(int64_t rows, int64_t cols, int64_t tokens, uint32_t seed, int64_t group_size = 64)
      : weight(mxfp4_like_weights(rows, cols, seed)),
        inputs(correlated_inputs(tokens, cols, seed + 100)),
        hessian(hessian_of(inputs, cols)) {
    input.rows = rows;
    input.cols = cols;
    input.group_size = group_size;
    input.weight = weight;
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
};

}  // namespace trefoil::solver_test
