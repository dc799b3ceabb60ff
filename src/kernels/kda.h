// Kimi Delta Attention for one head: a linear attention whose state is a matrix S that decays and is corrected towards
// each new key's value. docs/architecture.md, "KDA".
//   S <- S * alpha[k]  (decay along the key axis first)      e = v - S k  (with the decayed state)
//   S <- S + beta * e k^T                                    o = S q      (with the updated state)
//
// q, k    : [tokens, dim], normalised (kernels/norm.h), q scaled by dim^-0.5
// v, out  : [tokens, dim]
// lg      : [tokens, dim], log alpha, <= 0
// beta    : [tokens]
// state   : [dim (V), dim (K)], read and written, f32
// Everything f32; `out` is left for the caller to round. Rows of q, k, v, lg and out lie `stride` floats apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trefoil {

struct KdaArgs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* lg = nullptr;
  const float* beta = nullptr;  // element t at beta[t * beta_stride]
  float* state = nullptr;
  float* out = nullptr;
  int64_t tokens = 0;
  int64_t dim = 0;
  int64_t stride = 0;
  int64_t beta_stride = 1;
};

// The log decay of one head: lg[d] = lower_bound * sigmoid(exp_a_log * (g[d] + dt_bias[d])), lower_bound < 0. All
// [dim]. The bound multiplies a sigmoid, it does not clamp; exp(A_log) multiplies the sum with dt_bias.
void kda_log_decay(std::span<const float> g, std::span<const float> dt_bias, float exp_a_log, double lower_bound,
                   std::span<float> lg) noexcept;

// Token by token, as written above: the definition and the judge. Bits do not depend on how a prompt is cut into calls.
void kda_recurrent(const KdaArgs& args, std::vector<float>& scratch);

// The same function in chunks of 64 tokens (docs/architecture.md, "Chunked KDA"): equal in exact arithmetic, other
// roundings. Every exponent is a difference of cumulative log decays with a non-positive value, so nothing overflows
// whatever the decay; within a chunk, sub-blocks of 16 tokens share one reference point so that most of the work is
// matrix products. q and k are not rounded to bf16 here (the release's chunk kernel does round them).
void kda_chunked(const KdaArgs& args, std::vector<float>& scratch);

}  // namespace trefoil
