#include <immintrin.h>

#include "bench/peak_loops_impl.h"

namespace trefoil {
namespace {

// By value: an array that an asm writes to would live in memory.
[[gnu::always_inline]] inline __m512i dot4(__m512i acc, __m512i four) {
  asm("vpdpbusd %1, %1, %0" : "+v"(acc) : "v"(four));
  return acc;
}

}  // namespace

float dot_int8_loop_avx512vnni(int64_t rounds) noexcept {
  __m512i acc[kPeakChains];
  for (auto& a : acc) a = _mm512_setzero_si512();
  __m512i four = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(four));
#pragma GCC unroll 12
    for (int c = 0; c < kPeakChains; ++c) acc[c] = dot4(acc[c], four);
  }
  for (int c = 1; c < kPeakChains; ++c) acc[0] = _mm512_add_epi32(acc[0], acc[c]);
  return static_cast<float>(_mm512_reduce_add_epi32(acc[0]));
}

}  // namespace trefoil
