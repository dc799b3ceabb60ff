// Planes of 16 rows at once: 64 bytes of each row are loaded and transposed, so that a register holds the same 32 bits of
// every row, one row a lane; shifts and masks then make the planes' four bytes of every row together.
#include <immintrin.h>

#include "kernels/code_tiles_impl.h"

namespace trefoil {
namespace {

constexpr int kRows = 16;

// x[r] lane i -> x[i] lane r.
inline void transpose(__m512i (&x)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now 128-bit lane l of x[4 q + j] holds column 4 l + j of rows 4 q .. 4 q + 3.
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm512_shuffle_i32x4(x[j], x[4 + j], 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(x[j], x[4 + j], 0xDD);
    t[8 + j] = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x88);
    t[12 + j] = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xDD);
  }
  for (int j = 0; j < 4; ++j) {
    x[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
    x[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
    x[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xDD);
    x[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xDD);
  }
}

// (x | x << Shift) & mask
template <int Shift>
[[gnu::always_inline]] inline __m512i spread(__m512i x, __m512i mask) {
  return _mm512_ternarylogic_epi32(x, _mm512_slli_epi32(x, Shift), mask, 0xA8);
}

// The low 12 bits, four codes, as four bytes.
[[gnu::always_inline]] inline __m512i spread_codes(__m512i x) {
  const __m512i twelve = _mm512_and_si512(x, _mm512_set1_epi32(0xFFF));
  return spread<5>(spread<10>(twelve, _mm512_set1_epi32(0x003F003F)), _mm512_set1_epi32(0x07070707));
}
// The low 16 bits, four nibbles, as four bytes.
[[gnu::always_inline]] inline __m512i spread_nibbles(__m512i x) {
  const __m512i sixteen = _mm512_and_si512(x, _mm512_set1_epi32(0xFFFF));
  return spread<4>(spread<8>(sixteen, _mm512_set1_epi32(0x00FF00FF)), _mm512_set1_epi32(0x0F0F0F0F));
}

[[gnu::always_inline]] inline __m512i or3(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi32(a, b, c, 0xFE);
}

// The planes of one (c, h) from the 96 bits of a row's 32 codes.
[[gnu::always_inline]] inline void write_int3(__m512i a, __m512i b, __m512i c, std::byte* out) {
  const __m512i f0 = spread_codes(a), f1 = spread_codes(_mm512_srli_epi32(a, 12));
  const __m512i f2 = spread_codes(_mm512_or_si512(_mm512_srli_epi32(a, 24), _mm512_slli_epi32(b, 8)));
  const __m512i f3 = spread_codes(_mm512_srli_epi32(b, 4)), f4 = spread_codes(_mm512_srli_epi32(b, 16));
  const __m512i f5 = spread_codes(_mm512_or_si512(_mm512_srli_epi32(b, 28), _mm512_slli_epi32(c, 4)));
  const __m512i f6 = spread_codes(_mm512_srli_epi32(c, 8)), f7 = spread_codes(_mm512_srli_epi32(c, 20));
  const __m512i low = _mm512_set1_epi32(0x03030303), high = _mm512_set1_epi32(0x04040404);
  _mm512_store_si512(out, or3(f0, _mm512_slli_epi32(f1, 3), _mm512_slli_epi32(_mm512_and_si512(f6, low), 6)));
  _mm512_store_si512(out + 64, or3(f2, _mm512_slli_epi32(f3, 3), _mm512_slli_epi32(_mm512_and_si512(f7, low), 6)));
  const __m512i tops = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(f6, high), 4),
                                       _mm512_slli_epi32(_mm512_and_si512(f7, high), 5));
  _mm512_store_si512(out + 128, or3(f4, _mm512_slli_epi32(f5, 3), tops));
}

// The same from the 128 bits of a row's 32 nibbles.
[[gnu::always_inline]] inline void write_nibbles(const __m512i* words, std::byte* out) {
  for (int p = 0; p < 4; ++p) {
    const __m512i high = _mm512_slli_epi32(spread_nibbles(_mm512_srli_epi32(words[p], 16)), 4);
    _mm512_store_si512(out + 64 * p, _mm512_or_si512(spread_nibbles(words[p]), high));
  }
}

// Halves [half, half + count) of the columns of 16 rows, whose words are x.
template <TileFormat F>
[[gnu::always_inline]] inline void write_halves(const __m512i* x, int64_t half, int64_t count, int h,
                                                std::byte* tiles) {
  for (int64_t i = 0; i < count; ++i) {
    std::byte* out = tiles + (half + i) / 2 * tile_bytes(F) + (2 * ((half + i) % 2) + h) * plane_bytes(F);
    if constexpr (F == TileFormat::kInt3) {
      write_int3(x[3 * i], x[3 * i + 1], x[3 * i + 2], out);
    } else {
      write_nibbles(x + 4 * i, out);
    }
  }
}

template <TileFormat F>
void pack(const std::byte* codes, int64_t stride, int64_t groups, std::byte* tiles) {
  constexpr int kLoads = F == TileFormat::kInt3 ? 3 : 1;  // of 64 bytes, until groups end with a load
  constexpr int64_t kHalves = F == TileFormat::kInt3 ? 16 : 4;
  for (int h = 0; h < 2; ++h) {
    const std::byte* rows = codes + kRows * h * stride;
    for (int64_t unit = 0; unit * kHalves < 2 * groups; ++unit) {
      __m512i x[16 * kLoads];
      for (int part = 0; part < kLoads; ++part) {
        __m512i square[16];
        for (int r = 0; r < kRows; ++r) {
          square[r] = _mm512_loadu_si512(rows + r * stride + (unit * kLoads + part) * 64);
        }
        transpose(square);
        for (int i = 0; i < 16; ++i) x[16 * part + i] = square[i];
      }
      write_halves<F>(x, unit * kHalves, kHalves, h, tiles);
    }
  }
}

}  // namespace

void pack_planes_avx512(TileFormat format, const std::byte* codes, int64_t stride, int64_t groups,
                        std::byte* tiles) noexcept {
  switch (format) {
    case TileFormat::kInt3:
      return pack<TileFormat::kInt3>(codes, stride, groups, tiles);
    case TileFormat::kInt4:
      return pack<TileFormat::kInt4>(codes, stride, groups, tiles);
    case TileFormat::kMxfp4:
      return pack<TileFormat::kMxfp4>(codes, stride, groups, tiles);
  }
}

}  // namespace trefoil
