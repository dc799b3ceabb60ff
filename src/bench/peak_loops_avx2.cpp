#include <immintrin.h>

#include "bench/peak_loops_impl.h"

namespace trefoil {

float fma_loop_avx2(int64_t rounds) noexcept {
  __m256 acc[kPeakChains];
  for (auto& a : acc) a = _mm256_set1_ps(1.0f);
  __m256 factor = _mm256_set1_ps(0.5f);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+x"(factor));
#pragma GCC unroll 12
    for (int c = 0; c < kPeakChains; ++c) acc[c] = _mm256_fmadd_ps(acc[c], factor, factor);
  }
  for (int c = 1; c < kPeakChains; ++c) acc[0] = _mm256_add_ps(acc[0], acc[c]);
  return _mm256_cvtss_f32(acc[0]);
}

float read_loop_avx2(const std::byte* bytes, int64_t size) noexcept {
  __m256i acc[8];
  for (auto& a : acc) a = _mm256_setzero_si256();
  for (int64_t at = 0; at < size; at += 256) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      acc[c] = _mm256_xor_si256(acc[c], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + at + 32 * c)));
    }
  }
  for (int c = 1; c < 8; ++c) acc[0] = _mm256_xor_si256(acc[0], acc[c]);
  return static_cast<float>(_mm256_extract_epi32(acc[0], 0));
}

}  // namespace trefoil
