// One column of a panel's kLanes rows as a GCC/Clang vector, which the compiler splits into the registers it has, and the
// formulas of lanes.h on it. For files compiled once per instruction set, and for nothing else: everything here is local to
// the including file, because an inline function compiled for AVX-512 could become the copy that the whole program calls.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "quantize/lanes.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // functions that take a V are local and inlined

namespace trefoil {
namespace {

#define TREFOIL_INLINE [[maybe_unused]] static inline __attribute__((always_inline))

constexpr int kRows = 16;
static_assert(kRows == lanes::kLanes);
typedef float V __attribute__((vector_size(64)));
typedef float UnalignedV __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t U __attribute__((vector_size(64)));

TREFOIL_INLINE V load(const float* from) {
  return *reinterpret_cast<const UnalignedV*>(from);
}
TREFOIL_INLINE void store(float* to, const V& value) {
  *reinterpret_cast<UnalignedV*>(to) = value;
}
TREFOIL_INLINE V splat(float value) {
  return V{} + value;
}
TREFOIL_INLINE V to_bf16(const V& value) {
  const U bits = (U)value;
  return (V)((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
}
TREFOIL_INLINE V magnitude(const V& value) {
  return (V)((U)value & 0x7FFFFFFFu);
}
TREFOIL_INLINE V quantize(const V& ratio, float low, float high) {
  const V at_least = ratio < low ? splat(low) : ratio;
  const V clamped = at_least > high ? splat(high) : at_least;
  return (clamped + 12582912.0f) - 12582912.0f;  // lanes::round_half_even
}
// a * b + c, rounded once.
TREFOIL_INLINE V fma(const V& a, const V& b, const V& c) {
#if defined(__AVX512F__)
  return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  const auto half = [](const V& v, int at) { return _mm256_loadu_ps(reinterpret_cast<const float*>(&v) + 8 * at); };
  V result;
  for (int at = 0; at < 2; ++at) {
    _mm256_storeu_ps(reinterpret_cast<float*>(&result) + 8 * at,
                     _mm256_fmadd_ps(half(a, at), half(b, at), half(c, at)));
  }
  return result;
#else
  V result;
  for (int l = 0; l < kRows; ++l) result[l] = __builtin_fmaf(a[l], b[l], c[l]);
  return result;
#endif
}
TREFOIL_INLINE V fma(float a, const V& b, const V& c) {
  return fma(splat(a), b, c);
}
TREFOIL_INLINE bool any_lane(const V& value) {  // some lane is not zero
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)value, _mm512_setzero_ps(), _CMP_NEQ_UQ) != 0;
#else
  float lane[kRows];
  store(lane, value);
  float sum = 0.0f;
  for (int l = 0; l < kRows; ++l) sum += lane[l] != 0.0f ? 1.0f : 0.0f;
  return sum != 0.0f;
#endif
}
}  // namespace
}  // namespace trefoil
