// Legend: T tokens by one row together; the 16 lanes of a sum are two registers of eight. F the storage.
#include <immintrin.h>

#include "kernels/row_matmul_impl.h"

namespace trefoil {
namespace {

float sum_of_lanes(__m256 low, __m256 high) noexcept {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline __m256 widen_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

template <RowFormat F>
struct Row {
  const char* values;
  const uint16_t* scale;

  Row(const RowMatrix& w, int64_t row)
      : values(static_cast<const char*>(w.values) + row * w.k * (F == RowFormat::kBf16 ? 2 : 1)),
        scale(F == RowFormat::kInt8 ? w.scale + row * w.groups() : nullptr) {}

  // Columns [i, i + 8) at `from`, which is values or a copy of its end.
  static __m256 load(const char* from, __m256 step) {
    if constexpr (F == RowFormat::kBf16) {
      return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    } else {
      const __m128i q = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
      return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), step);
    }
  }
  __m256 step(int64_t i) const {
    if constexpr (F == RowFormat::kBf16) {
      return _mm256_setzero_ps();
    } else {
      return _mm256_castsi256_ps(
          _mm256_set1_epi32(static_cast<int>(static_cast<uint32_t>(scale[i / kInt8Group]) << 16)));
    }
  }
};

constexpr int64_t kBytesOf[] = {2, 1};

template <RowFormat F, int T>
void one_row(const RowMatmulArgs& a, int64_t index) noexcept {
  constexpr int64_t kBytes = kBytesOf[static_cast<int>(F)];
  const Row<F> row(a.w, index);
  __m256 low[T], high[T];
  for (int t = 0; t < T; ++t) low[t] = high[t] = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 16 <= a.w.k; i += 16) {
    const __m256 step = row.step(i);
    const __m256 w0 = Row<F>::load(row.values + i * kBytes, step),
                 w1 = Row<F>::load(row.values + (i + 8) * kBytes, step);
    for (int t = 0; t < T; ++t) {
      const float* x = a.x + t * a.x_stride + i;
      low[t] = _mm256_fmadd_ps(_mm256_loadu_ps(x), w0, low[t]);
      high[t] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8), w1, high[t]);
    }
  }
  if (i < a.w.k) {
    char end[32] = {};
    for (int64_t b = 0; b < (a.w.k - i) * kBytes; ++b) end[b] = row.values[i * kBytes + b];
    const __m256 step = row.step(i);
    const __m256 w0 = Row<F>::load(end, step), w1 = Row<F>::load(end + 8 * kBytes, step);
    for (int t = 0; t < T; ++t) {
      float x[16] = {};
      for (int64_t j = 0; j < a.w.k - i; ++j) x[j] = a.x[t * a.x_stride + i + j];
      low[t] = _mm256_fmadd_ps(_mm256_loadu_ps(x), w0, low[t]);
      high[t] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8), w1, high[t]);
    }
  }
  for (int t = 0; t < T; ++t) a.y[t * a.y_stride + index] = sum_of_lanes(low[t], high[t]);
}

template <RowFormat F>
void all_rows(const RowMatmulArgs& args) noexcept {
  static_assert(kRowTokens == 4);
  for (int64_t row = 0; row < args.rows; ++row) {
    switch (args.tokens) {
      case 1:
        one_row<F, 1>(args, row);
        break;
      case 2:
        one_row<F, 2>(args, row);
        break;
      case 3:
        one_row<F, 3>(args, row);
        break;
      default:
        one_row<F, 4>(args, row);
    }
  }
}

template <RowFormat F>
void decode(const RowMatrix& w, int64_t rows, float* out) noexcept {
  constexpr int64_t kBytes = kBytesOf[static_cast<int>(F)];
  for (int64_t r = 0; r < rows; ++r) {
    const Row<F> row(w, r);
    for (int64_t i = 0; i < w.k; i += 8) {
      char block[16] = {};
      const int64_t count = w.k - i < 8 ? w.k - i : 8;
      for (int64_t b = 0; b < count * kBytes; ++b) block[b] = row.values[i * kBytes + b];
      alignas(32) float values[8];
      _mm256_store_ps(values, Row<F>::load(count == 8 ? row.values + i * kBytes : block, row.step(i)));
      for (int64_t j = 0; j < count; ++j) out[r * w.k + i + j] = values[j];
    }
  }
}

}  // namespace

void row_matmul_avx2(const RowMatmulArgs& args) noexcept {
  if (args.w.format == RowFormat::kBf16) {
    all_rows<RowFormat::kBf16>(args);
  } else {
    all_rows<RowFormat::kInt8>(args);
  }
}

void row_decode_avx2(const RowMatrix& w, int64_t rows, float* out) noexcept {
  if (w.format == RowFormat::kBf16) {
    decode<RowFormat::kBf16>(w, rows, out);
  } else {
    decode<RowFormat::kInt8>(w, rows, out);
  }
}

}  // namespace trefoil
