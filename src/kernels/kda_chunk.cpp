// Legend, for one chunk of C <= 64 tokens with the state S [V][K] as it enters:
//   G_i    = lg_0 + ... + lg_i, per key channel                                             [C, dim]
//   A_ij   = sum_d k_i[d] k_j[d] exp(G_i[d] - G_j[d])  for j < i,  B_ij the same with q_i for j <= i   [C, C]
//   x_i    = beta_i (v_i - S (k_i exp(G_i)) - sum_{j<i} A_ij x_j)     what token i writes        [C, dim]
//   out_i  = S (q_i exp(G_i)) + sum_{j<=i} B_ij x_j
//   S     <- S * exp(G_last) + sum_i x_i (k_i exp(G_last - G_i))^T
#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/elementary.h"
#include "kernels/elementwise.h"
#include "kernels/kda.h"
#include "kernels/matmul.h"

namespace trefoil {
namespace {

constexpr int64_t kChunk = 64;
constexpr int64_t kSubBlock = 16;

// Views into one scratch vector, sized for a full chunk.
struct Workspace {
  float *decay, *k, *q, *v;     // [C, dim]: G; k, q (later multiplied by exp(G)); v
  float *left_k, *left_q;       // [kSubBlock, dim]: rows times exp(G_i - reference)
  float* right;                 // [C, dim]: rows times exp(reference - G_j), later exp(G_last - G_i)
  float *a, *b;                 // [C, C]
  float *from_state, *written;  // [C, dim]: S (k exp G); x

  Workspace(std::vector<float>& scratch, int64_t dim) {
    const int64_t rows = kChunk * dim;
    scratch.resize(static_cast<size_t>(7 * rows + 2 * kSubBlock * dim + 2 * kChunk * kChunk));
    float* next = scratch.data();
    const auto take = [&next](int64_t count) { return std::exchange(next, next + count); };
    decay = take(rows), k = take(rows), q = take(rows), v = take(rows);
    right = take(rows), from_state = take(rows), written = take(rows);
    left_k = take(kSubBlock * dim), left_q = take(kSubBlock * dim);
    a = take(kChunk * kChunk), b = take(kChunk * kChunk);
  }
};

struct Chunk {
  const KdaArgs& args;
  const Workspace& w;
  int64_t begin;  // first token
  int64_t count;  // tokens
  int64_t dim;

  // Copies the strided rows together and sums the log decays.
  void gather() const {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = (begin + i) * args.stride;
      std::copy_n(args.k + from, dim, w.k + i * dim);
      std::copy_n(args.q + from, dim, w.q + i * dim);
      std::copy_n(args.v + from, dim, w.v + i * dim);
      for (int64_t d = 0; d < dim; ++d) {
        w.decay[i * dim + d] = args.lg[from + d] + (i > 0 ? w.decay[(i - 1) * dim + d] : 0.0f);
      }
    }
  }

  // out[r] = row r of `from` times exp(G_r - ref) or exp(ref - G_r): `sign` makes the exponent non-positive.
  void scale_rows(const float* from, int64_t row_begin, int64_t row_end, const float* ref, float sign,
                  float* out) const {
    for (int64_t i = row_begin; i < row_end; ++i) {
      for (int64_t d = 0; d < dim; ++d) {
        *out++ = from[i * dim + d] * exp_f32(sign * (w.decay[i * dim + d] - ref[d]));
      }
    }
  }

  // Rows [i0, i1) of A and B against all earlier sub-blocks, through the point where sub-block i0 begins: both
  // exponents G_i - G_{i0-1} and G_{i0-1} - G_j are sums of log decays, so neither is positive.
  void scores_of_earlier_blocks(int64_t i0, int64_t i1) const {
    if (i0 == 0) return;
    const float* reference = w.decay + (i0 - 1) * dim;
    scale_rows(w.k, i0, i1, reference, 1.0f, w.left_k);
    scale_rows(w.q, i0, i1, reference, 1.0f, w.left_q);
    scale_rows(w.k, 0, i0, reference, -1.0f, w.right);
    MatmulArgs product = {.x = w.left_k,
                          .w = w.right,
                          .y = w.a + i0 * kChunk,
                          .tokens = i1 - i0,
                          .rows = i0,
                          .k = dim,
                          .x_stride = dim,
                          .y_stride = kChunk};
    matmul(product);
    product.x = w.left_q;
    product.y = w.b + i0 * kChunk;
    matmul(product);
  }

  // A and B inside one sub-block, each exponent taken directly.
  void scores_within_block(int64_t i0, int64_t i1) const {
    for (int64_t i = i0; i < i1; ++i) {
      for (int64_t j = i0; j <= i; ++j) {
        float kk = 0;
        float qk = 0;
        for (int64_t d = 0; d < dim; ++d) {
          const float decayed = w.k[j * dim + d] * exp_f32(w.decay[i * dim + d] - w.decay[j * dim + d]);
          kk += w.k[i * dim + d] * decayed;
          qk += w.q[i * dim + d] * decayed;
        }
        w.a[i * kChunk + j] = kk;
        w.b[i * kChunk + j] = qk;
      }
    }
  }

  // rows * exp(G) against the state: [count, dim (K)] x [dim (V), dim (K)] -> [count, dim (V)].
  void read_state(float* rows, float* result) const {
    for (int64_t i = 0; i < count * dim; ++i) rows[i] *= exp_f32(w.decay[i]);
    matmul({.x = rows,
            .w = args.state,
            .y = result,
            .tokens = count,
            .rows = dim,
            .k = dim,
            .x_stride = dim,
            .y_stride = dim});
  }

  // Forward substitution: x_i needs the x_j before it.
  void solve_written() const {
    for (int64_t i = 0; i < count; ++i) {
      const std::span<float> x(w.written + i * dim, static_cast<size_t>(dim));
      for (int64_t d = 0; d < dim; ++d) x[static_cast<size_t>(d)] = w.v[i * dim + d] - w.from_state[i * dim + d];
      for (int64_t j = 0; j < i; ++j) add_scaled(-w.a[i * kChunk + j], {w.written + j * dim, x.size()}, x);
      const float beta = args.beta[(begin + i) * args.beta_stride];
      for (float& value : x) value *= beta;
    }
  }

  void write_outputs() const {
    for (int64_t i = 0; i < count; ++i) {
      const std::span<float> out(args.out + (begin + i) * args.stride, static_cast<size_t>(dim));
      std::copy_n(w.from_state + i * dim, dim, out.data());
      for (int64_t j = 0; j <= i; ++j) add_scaled(w.b[i * kChunk + j], {w.written + j * dim, out.size()}, out);
    }
  }

  // Needs k as given, so it takes it from the arguments again: w.k has been scaled by exp(G).
  void advance_state() const {
    const float* last = w.decay + (count - 1) * dim;
    for (int64_t i = 0; i < count; ++i) {
      const float* key = args.k + (begin + i) * args.stride;
      for (int64_t d = 0; d < dim; ++d) w.right[i * dim + d] = key[d] * exp_f32(last[d] - w.decay[i * dim + d]);
    }
    for (int64_t row = 0; row < dim; ++row) {
      const std::span<float> s(args.state + row * dim, static_cast<size_t>(dim));
      for (int64_t d = 0; d < dim; ++d) s[static_cast<size_t>(d)] *= exp_f32(last[d]);
      for (int64_t i = 0; i < count; ++i) add_scaled(w.written[i * dim + row], {w.right + i * dim, s.size()}, s);
    }
  }

  void run() const {
    gather();
    for (int64_t i0 = 0; i0 < count; i0 += kSubBlock) {
      const int64_t i1 = std::min(count, i0 + kSubBlock);
      scores_of_earlier_blocks(i0, i1);
      scores_within_block(i0, i1);
    }
    read_state(w.k, w.from_state);
    solve_written();
    read_state(w.q, w.from_state);
    write_outputs();
    advance_state();
  }
};

}  // namespace

void kda_chunked(const KdaArgs& args, std::vector<float>& scratch) {
  const Workspace workspace(scratch, args.dim);
  for (int64_t begin = 0; begin < args.tokens; begin += kChunk) {
    Chunk{args, workspace, begin, std::min(kChunk, args.tokens - begin), args.dim}.run();
  }
}

}  // namespace trefoil
