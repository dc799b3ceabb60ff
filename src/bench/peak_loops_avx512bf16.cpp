#include <immintrin.h>

#include "bench/peak_loops_impl.h"

namespace trefoil {

float dot_bf16_loop_avx512bf16(int64_t rounds) noexcept {
  __m512 acc[kPeakChains];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  __m512i pair = _mm512_set1_epi32(0x3C003C00);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(pair));
#pragma GCC unroll 12
    for (int c = 0; c < kPeakChains; ++c) {
      acc[c] = _mm512_dpbf16_ps(acc[c], reinterpret_cast<__m512bh>(pair), reinterpret_cast<__m512bh>(pair));
    }
  }
  float sum = 0;
  for (const auto& a : acc) sum += _mm512_reduce_add_ps(a);
  return sum;
}

}  // namespace trefoil
