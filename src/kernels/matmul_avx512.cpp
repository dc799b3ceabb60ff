// Legend: T tokens by R rows of the output are computed together; each of the T * R elements owns one zmm register
// whose 16 lanes are the 16 lanes of the contract. T = R = 4 uses 16 accumulators, 4 weight registers and 1 activation.
#include <immintrin.h>

#include "kernels/matmul_impl.h"

namespace trefoil {
namespace {

float sum_of_lanes(__m512 lane) noexcept {
  const __m256 eight = _mm256_add_ps(_mm512_extractf32x8_ps(lane, 0), _mm512_extractf32x8_ps(lane, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Inlined and unrolled by order: the accumulators must stay in registers at any optimisation level.
template <int T, int R>
[[gnu::always_inline]] inline void step(__m512 (&lane)[T][R], const float* x, int64_t x_stride, const float* w,
                                        int64_t k, __mmask16 mask) {
  __m512 weight[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) weight[r] = _mm512_maskz_loadu_ps(mask, w + r * k);
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    const __m512 value = _mm512_maskz_loadu_ps(mask, x + t * x_stride);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) lane[t][r] = _mm512_fmadd_ps(value, weight[r], lane[t][r]);
  }
}

template <int T, int R>
void tile(const MatmulArgs& a, int64_t token, int64_t row) noexcept {
  const float* x = a.x + token * a.x_stride;
  const float* w = a.w + row * a.k;
  __m512 lane[T][R];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) lane[t][r] = _mm512_setzero_ps();
  }
  int64_t i = 0;
  for (; i + 16 <= a.k; i += 16) step<T, R>(lane, x + i, a.x_stride, w + i, a.k, 0xFFFF);
  if (i < a.k) step<T, R>(lane, x + i, a.x_stride, w + i, a.k, static_cast<__mmask16>((1u << (a.k - i)) - 1));
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) a.y[(token + t) * a.y_stride + row + r] = sum_of_lanes(lane[t][r]);
  }
}

template <int T>
void row_tiles(const MatmulArgs& a, int64_t token) noexcept {
  int64_t row = 0;
  for (; row + 4 <= a.rows; row += 4) tile<T, 4>(a, token, row);
  for (; row < a.rows; ++row) tile<T, 1>(a, token, row);
}

}  // namespace

void matmul_avx512(const MatmulArgs& args) noexcept {
  int64_t token = 0;
  for (; token + 4 <= args.tokens; token += 4) row_tiles<4>(args, token);
  for (; token < args.tokens; ++token) row_tiles<1>(args, token);
}

}  // namespace trefoil
