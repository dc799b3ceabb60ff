// Legend: T tokens by R rows of the output are computed together; each of the T * R elements owns two ymm registers,
// lanes 0..7 and 8..15 of the contract. T = R = 2 uses 8 accumulators, 4 weight registers and 2 activations.
#include <immintrin.h>

#include "kernels/matmul_impl.h"

namespace trefoil {
namespace {

struct Lanes {
  __m256 low, high;
};

float sum_of_lanes(const Lanes& lane) noexcept {
  const __m256 eight = _mm256_add_ps(lane.low, lane.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

Lanes load16(const float* from) noexcept {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

// The first `count` < 16 elements, the rest zero.
Lanes load_tail(const float* from, int64_t count) noexcept {
  float padded[16] = {};
  for (int64_t j = 0; j < count; ++j) padded[j] = from[j];
  return load16(padded);
}

[[gnu::always_inline]] inline void accumulate(Lanes& lane, const Lanes& x, const Lanes& w) {
  lane.low = _mm256_fmadd_ps(x.low, w.low, lane.low);
  lane.high = _mm256_fmadd_ps(x.high, w.high, lane.high);
}

// Unrolled by order: the accumulators must stay in registers at any optimisation level.
template <int T, int R>
void tile(const MatmulArgs& a, int64_t token, int64_t row) noexcept {
  const float* x = a.x + token * a.x_stride;
  const float* w = a.w + row * a.k;
  Lanes lane[T][R];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) lane[t][r] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  }
  int64_t i = 0;
  for (; i + 16 <= a.k; i += 16) {
    Lanes weight[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) weight[r] = load16(w + r * a.k + i);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const Lanes value = load16(x + t * a.x_stride + i);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) accumulate(lane[t][r], value, weight[r]);
    }
  }
  if (i < a.k) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const Lanes value = load_tail(x + t * a.x_stride + i, a.k - i);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) accumulate(lane[t][r], value, load_tail(w + r * a.k + i, a.k - i));
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) a.y[(token + t) * a.y_stride + row + r] = sum_of_lanes(lane[t][r]);
  }
}

template <int T>
void row_tiles(const MatmulArgs& a, int64_t token) noexcept {
  int64_t row = 0;
  for (; row + 2 <= a.rows; row += 2) tile<T, 2>(a, token, row);
  for (; row < a.rows; ++row) tile<T, 1>(a, token, row);
}

}  // namespace

void matmul_avx2(const MatmulArgs& args) noexcept {
  int64_t token = 0;
  for (; token + 2 <= args.tokens; token += 2) row_tiles<2>(args, token);
  for (; token < args.tokens; ++token) row_tiles<1>(args, token);
}

}  // namespace trefoil
