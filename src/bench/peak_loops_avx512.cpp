#include <immintrin.h>

#include "bench/peak_loops_impl.h"

namespace trefoil {

float fma_loop_avx512(int64_t rounds) noexcept {
  __m512 acc[kPeakChains];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  __m512 factor = _mm512_set1_ps(0.5f);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(factor));
#pragma GCC unroll 12
    for (int c = 0; c < kPeakChains; ++c) acc[c] = _mm512_fmadd_ps(acc[c], factor, factor);
  }
  float sum = 0;
  for (const auto& a : acc) sum += _mm512_reduce_add_ps(a);
  return sum;
}

float read_loop_avx512(const std::byte* bytes, int64_t size) noexcept {
  __m512i acc[8];
  for (auto& a : acc) a = _mm512_setzero_si512();
  for (int64_t at = 0; at < size; at += 512) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) acc[c] = _mm512_xor_si512(acc[c], _mm512_loadu_si512(bytes + at + 64 * c));
  }
  for (int c = 1; c < 8; ++c) acc[0] = _mm512_xor_si512(acc[0], acc[c]);
  return static_cast<float>(_mm512_reduce_add_epi32(acc[0]));
}

}  // namespace trefoil
