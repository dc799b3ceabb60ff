// The product of a row-major matrix of bf16 or int8 with a few tokens, read as it is stored: the path of everything but
// the routed experts in decode.
//   y[t, o] = sum_k x[t, k] * w[o, k],  kBf16: w as stored;  kInt8: w = q[o, k] * scale[o, k / 64], exact in f32
//
// The bits are those of kernels/matmul.h on the decoded weights: one contract for a token alone and in a batch, whatever
// the instruction set. Activations are used as f32 (A16 exact). Never starts threads. Cannot fail.
#pragma once

#include <span>
#include <vector>

#include "base/cpu.h"
#include "kernels/row_matmul_impl.h"

namespace trefoil {

std::span<const Impl<RowMatmulFn>> row_matmul_impls();
std::span<const Impl<RowDecodeFn>> row_decode_impls();

// Any number of tokens; weights are converted again for every kRowTokens of them.
void row_matmul(const RowMatmulArgs& args) noexcept;
// Rows as f32, [rows, k], for products with many tokens.
void row_decode(const RowMatrix& w, int64_t rows, float* out) noexcept;

// Quantizes rows [rows, k] of f32 to int8 with one bf16 scale per kInt8Group columns, max|w| / 127 rounded up to bf16:
// no value is clipped. q [rows, k], scale [rows, ceil(k / kInt8Group)]. Values are finite.
void quantize_int8_rows(std::span<const float> w, int64_t rows, int64_t k, std::span<int8_t> q,
                        std::span<uint16_t> scale) noexcept;

}  // namespace trefoil
