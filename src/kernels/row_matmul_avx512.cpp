// Legend: T tokens by R rows together, one register of 16 lanes for each of the T * R sums; F the storage.
// Two rows at a time: a single row's chain of additions would wait for itself, more rows are more streams from memory.
#include <immintrin.h>

#include "kernels/row_matmul_impl.h"

namespace trefoil {
namespace {

float sum_of_lanes(__m512 lane) noexcept {
  const __m256 eight = _mm256_add_ps(_mm512_extractf32x8_ps(lane, 0), _mm512_extractf32x8_ps(lane, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float bf16_value(uint16_t bits) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(static_cast<uint32_t>(bits) << 16))));
}

template <RowFormat F>
struct Row {
  const char* values;
  const uint16_t* scale;

  Row(const RowMatrix& w, int64_t row)
      : values(static_cast<const char*>(w.values) + row * w.k * (F == RowFormat::kBf16 ? 2 : 1)),
        scale(F == RowFormat::kInt8 ? w.scale + row * w.groups() : nullptr) {}

  // Columns [i, i + 16), those outside the mask 0; `step` is the scale of their group.
  [[gnu::always_inline]] __m512 load(int64_t i, __mmask16 mask, __m512 step) const {
    if constexpr (F == RowFormat::kBf16) {
      const __m256i bits = _mm256_maskz_loadu_epi16(mask, values + 2 * i);
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    } else {
      const __m128i q = _mm_maskz_loadu_epi8(mask, values + i);
      return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)), step);
    }
  }
  [[gnu::always_inline]] __m512 step(int64_t i) const {
    if constexpr (F == RowFormat::kBf16) {
      return _mm512_setzero_ps();
    } else {
      return _mm512_set1_ps(bf16_value(scale[i / kInt8Group]));
    }
  }
};

constexpr int64_t kAhead = 2048;  // bytes of a row to ask for in advance

template <RowFormat F, int T, int R>
void tile(const RowMatmulArgs& a, int64_t row) noexcept {
  const Row<F> rows[2] = {Row<F>(a.w, row), Row<F>(a.w, row + R - 1)};
  __m512 lane[T][R];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) lane[t][r] = _mm512_setzero_ps();
  }
  const auto add = [&](int64_t i, __mmask16 mask, const __m512(&step)[R]) __attribute__((always_inline)) {
    __m512 w[R];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) w[r] = rows[r].load(i, mask, step[r]);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m512 x = _mm512_maskz_loadu_ps(mask, a.x + t * a.x_stride + i);
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) lane[t][r] = _mm512_fmadd_ps(x, w[r], lane[t][r]);
    }
  };
  constexpr int64_t kBytes = F == RowFormat::kBf16 ? 2 : 1;
  int64_t i = 0;
  for (; i + kInt8Group <= a.w.k; i += kInt8Group) {
    __m512 step[R];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
      step[r] = rows[r].step(i);
      for (int64_t at = 0; at < kInt8Group * kBytes; at += 64)
        _mm_prefetch(rows[r].values + i * kBytes + at + kAhead, _MM_HINT_T0);
    }
#pragma GCC unroll 4
    for (int64_t j = 0; j < kInt8Group; j += 16) add(i + j, 0xFFFF, step);
  }
  for (; i < a.w.k; i += 16) {
    __m512 step[R];
    for (int r = 0; r < R; ++r) step[r] = rows[r].step(i);
    add(i, a.w.k - i >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (a.w.k - i)) - 1), step);
  }
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; ++r) a.y[t * a.y_stride + row + r] = sum_of_lanes(lane[t][r]);
  }
}

template <RowFormat F, int T>
void all_rows(const RowMatmulArgs& args) noexcept {
  int64_t row = 0;
  for (; row + 2 <= args.rows; row += 2) tile<F, T, 2>(args, row);
  if (row < args.rows) tile<F, T, 1>(args, row);
}

template <RowFormat F>
void all_tokens(const RowMatmulArgs& args) noexcept {
  static_assert(kRowTokens == 4);
  switch (args.tokens) {
    case 1:
      return all_rows<F, 1>(args);
    case 2:
      return all_rows<F, 2>(args);
    case 3:
      return all_rows<F, 3>(args);
    default:
      return all_rows<F, 4>(args);
  }
}

template <RowFormat F>
void decode(const RowMatrix& w, int64_t rows, float* out) noexcept {
  for (int64_t r = 0; r < rows; ++r) {
    const Row<F> row(w, r);
    for (int64_t i = 0; i < w.k; i += 16) {
      const __mmask16 mask = w.k - i >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (w.k - i)) - 1);
      _mm512_mask_storeu_ps(out + r * w.k + i, mask, row.load(i, mask, row.step(i)));
    }
  }
}

}  // namespace

void row_matmul_avx512(const RowMatmulArgs& args) noexcept {
  if (args.w.format == RowFormat::kBf16) {
    all_tokens<RowFormat::kBf16>(args);
  } else {
    all_tokens<RowFormat::kInt8>(args);
  }
}

void row_decode_avx512(const RowMatrix& w, int64_t rows, float* out) noexcept {
  if (w.format == RowFormat::kBf16) {
    decode<RowFormat::kBf16>(w, rows, out);
  } else {
    decode<RowFormat::kInt8>(w, rows, out);
  }
}

}  // namespace trefoil
