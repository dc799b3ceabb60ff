// What calibration remembers of a Linear's inputs: weighted second moments, and how far they can be trusted.
//
//   H = sum_t c_t x_t x_t^T / sum_t c_t          x_t in R^dim, c_t >= 0 the weight of token t
//   n_eff = (sum_t c_t)^2 / sum_t c_t^2          the number of equally weighted tokens worth as much
//
// Not thread safe: one accumulator per expert, filled by one thread. docs/quantization.md, "Hessians".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trefoil {

// Sums are kept in f32; the products of bf16 inputs are exact in it. Tokens are buffered and added in runs of a fixed
// length, so that the result does not depend on how the caller cut them into calls.
class HessianAccumulator {
 public:
  explicit HessianAccumulator(int64_t dim);

  // x: [tokens, dim]; weights: [tokens], or empty for all ones. A weight of 0 adds nothing but is counted as a token.
  // Error(kCorrupt) naming the token and column when an input is NaN or infinite, or the weight negative or not finite.
  void add(std::span<const float> x, std::span<const float> weights);

  int64_t dim() const { return dim_; }
  int64_t tokens() const { return tokens_; }
  double weight_sum() const { return weight_sum_; }
  double effective_tokens() const;

  // H, full symmetric [dim, dim]; all zeros when nothing (or only zero weights) was added.
  // Error(kCorrupt) when a sum overflowed. More tokens may be added afterwards.
  std::vector<float> mean();

 private:
  void flush();
  void finish_tile(std::vector<float>& full, double factor, int64_t row, int64_t col, int64_t tile) const;

  int64_t dim_;
  int64_t tokens_ = 0;
  double weight_sum_ = 0;
  double weight_square_sum_ = 0;
  int64_t buffered_ = 0;
  std::vector<float> buffer_;  // [kRun, dim], rows scaled by sqrt(c_t)
  std::vector<float> lower_;   // [dim, dim], lower triangle of the weighted sum
};

// The cross moment of two streams of the same tokens, for the mismatch target:
//   C = sum_t c_t (x0_t - x_t) x_t^T / sum_t c_t     x0 from the original stream, x from the quantized one
class CrossAccumulator {
 public:
  explicit CrossAccumulator(int64_t dim);
  // original, quantized: [tokens, dim]; weights as above. Same errors.
  void add(std::span<const float> original, std::span<const float> quantized, std::span<const float> weights);
  int64_t dim() const { return dim_; }
  std::vector<float> mean();  // [dim, dim], not symmetric; zeros when nothing was added

 private:
  void flush();

  int64_t dim_;
  int64_t tokens_ = 0;
  double weight_sum_ = 0;
  int64_t buffered_ = 0;
  std::vector<float> difference_;  // [kRun, dim], c_t (x0 - x)
  std::vector<float> input_;       // [kRun, dim], x
  std::vector<float> sum_;         // [dim, dim]
};

// The share of a thin expert's Hessian that comes from the shared one: lambda = dim / (dim + trust n_eff), 1 without
// tokens.
double shrinkage_lambda(int64_t dim, double effective_tokens, double trust = 4.0);

// hessian <- (1 - lambda) hessian + lambda (tr hessian / tr shared) shared; `shared` itself when hessian is zero,
// untouched when shared is zero. Both [dim, dim].
void shrink_towards(std::span<float> hessian, std::span<const float> shared, int64_t dim, double lambda);

// Damping as a fraction of the mean diagonal. After shrinking to a shared target (w1, w3) little is left to do; without
// a target (w2, whose columns mean something else in every expert) the identity has to stand in for one.
double dampening_after_shrinkage(double lambda, double least = 0.01);  // max(least, 0.2 lambda)
double dampening_without_target(double lambda, double least = 0.01);   // max(least, lambda)

// The mismatch target (GPTAQ, arXiv 2504.02692, in closed form): quantizing W* against the quantized stream's H asks
// for the outputs that W had on the original stream.
//   W* = W + alpha W K,   K = C (H + ridge mean(diag H) I)^-1
// K is one for all Linears with these inputs. cross, hessian: [dim, dim] as above. Returns K [dim, dim]; empty, which
// stands for 0, when H is zero or the factorization fails.
std::vector<float> mismatch_map(std::vector<float> cross, std::span<const float> hessian, int64_t dim,
                                double ridge = 0.05);

// weight: [rows, dim]; map: K, or empty. Returns W* [rows, dim]. Error(kCorrupt) when it is not finite.
std::vector<float> mismatch_target(std::span<const float> weight, std::span<const float> map, int64_t rows, int64_t dim,
                                   double alpha);

// e H e^T for each row e of E. error: E transposed, [dim, rows], as panels are (lanes.h): rows is a multiple of kLanes.
// hessian: [dim, dim], symmetric.
// Products of f32 blocks, each element a sum of at most kLossTerms products, added up in f64.
constexpr int64_t kLossTerms = 512;
std::vector<double> row_losses(std::span<const float> error, std::span<const float> hessian, int64_t rows, int64_t dim);

}  // namespace trefoil
