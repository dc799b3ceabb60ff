// What the AVX-512 files of tile_matmul.h share: unrolling, the shape of the loops, and the output. Included by
// nothing else; everything here is local to the including file.
//
// Legend: F tile format; T tokens computed together; c column half, h row half (16 rows, one zmm); g group of 64 columns.
#pragma once

#include <immintrin.h>

#include <utility>

#include "kernels/tile_matmul_impl.h"

namespace trefoil {
namespace {

template <typename Body, int... I>
[[gnu::always_inline]] inline void unroll_over(Body& body, std::integer_sequence<int, I...>) {
  (body(std::integral_constant<int, I>{}), ...);
}
// body(0), ..., body(N - 1) with constants.
template <int N, typename Body>
[[gnu::always_inline]] inline void unroll(Body body) {
  unroll_over(body, std::make_integer_sequence<int, N>{});
}

// The planes of one (c, h) of a tile.
template <TileFormat F>
struct Planes {
  static constexpr int kCount = F == TileFormat::kInt3 ? 3 : 4;
  __m512i p[kCount];

  [[gnu::always_inline]] static Planes load(const std::byte* at) {
    Planes planes;
    unroll<kCount>([&](auto i) __attribute__((always_inline)) { planes.p[i] = _mm512_load_si512(at + 64 * i); });
    return planes;
  }
};

template <TileFormat F>
inline const std::byte* planes_of(const std::byte* tile, int c, int h) {
  return tile + (2 * c + h) * plane_bytes(F);
}

template <int Shift>
[[gnu::always_inline]] inline __m512i shift_right(__m512i x) {
  if constexpr (Shift == 0) return x;
  return _mm512_srli_epi16(x, Shift);
}

template <int Shift>
[[gnu::always_inline, maybe_unused]] inline __m512i shift_lane_right(__m512i x) {
  if constexpr (Shift == 0) return x;
  return _mm512_srli_epi32(x, Shift);
}

// Field o of every byte in its low bits; what lies above them is anything.
template <TileFormat F, int O>
[[gnu::always_inline]] inline __m512i field(const Planes<F>& planes) {
  if constexpr (F != TileFormat::kInt3) {
    return shift_right<4 * (O % 2)>(planes.p[O / 2]);
  } else if constexpr (O < 6) {
    return shift_right<3 * (O % 2)>(planes.p[O / 2]);
  } else {
    // The two low bits are the top of plane O - 6, the high one is bit O of plane 2.
    const __m512i high_bit = _mm512_set1_epi8(4);
    return _mm512_ternarylogic_epi32(high_bit, shift_right<O - 2>(planes.p[2]), shift_right<6>(planes.p[O - 6]), 0xCA);
  }
}

// The scales of row half h; for kMxfp4 of column half c.
template <TileFormat F>
[[gnu::always_inline]] inline __m512 tile_scale(const std::byte* tile, int c, int h) {
  const std::byte* scales = tile + 4 * plane_bytes(F);
  if constexpr (F == TileFormat::kMxfp4) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(scales + 32 * c + 16 * h)));
    // 2^(e - 127) has e as its exponent field, except 2^-127, which is subnormal.
    const __m512i bits = _mm512_slli_epi32(e, 23);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(bits, _mm512_testn_epi32_mask(e, e), _mm512_set1_epi32(0x00400000)));
  } else {
    const __m256i bf16 = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales + 32 * h));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
  }
}

// kExact: y + scale * the sums of the group's two halves.
template <TileFormat F>
[[gnu::always_inline, maybe_unused]] inline __m512 add_group(__m512 y, __m512 acc0, __m512 acc1, const std::byte* tile,
                                                             int h) {
  if constexpr (F == TileFormat::kMxfp4) {
    return _mm512_fmadd_ps(acc1, tile_scale<F>(tile, 1, h), _mm512_fmadd_ps(acc0, tile_scale<F>(tile, 0, h), y));
  } else {
    return _mm512_fmadd_ps(_mm512_add_ps(acc0, acc1), tile_scale<F>(tile, 0, h), y);
  }
}

[[gnu::always_inline]] inline void prefetch_tile(const std::byte* tile, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(reinterpret_cast<const char*>(tile + at), _MM_HINT_T1);
}

// The rows of a block that exist, of row half h.
inline __mmask16 row_mask(int64_t rows_left, int h) {
  const int64_t count = rows_left - 16 * h;
  return count >= 16 ? 0xFFFF : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

constexpr int64_t kPassTokens = 128;  // packed tokens of a pass stay in L2 while the row blocks go by

// Sums of a row block by some tokens, [tokens][32], in L1 between the groups.
struct BlockSums {
  alignas(64) float y[kPassTokens][kTileRows];
};

inline void store_block(const TileMatmulArgs& args, int64_t block, int64_t token, int64_t count,
                        const BlockSums& sums) {
  const int64_t rows_left = args.rows - block * kTileRows;
  for (int64_t t = 0; t < count; ++t) {
    float* out = args.y + (token + t) * args.y_stride + block * kTileRows;
    for (int h = 0; h < 2; ++h) {
      _mm512_mask_storeu_ps(out + 16 * h, row_mask(rows_left, h), _mm512_load_ps(&sums.y[t][16 * h]));
    }
  }
}

// kExact: the sums of the first column half wait in memory while the second is multiplied, then both are added to y.
template <int T>
struct FirstHalf {
  alignas(64) float sums[2][T][16];

  [[gnu::always_inline]] void keep(const __m512 (&acc)[2][T]) {
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      _mm512_store_ps(sums[0][t], acc[0][t]);
      _mm512_store_ps(sums[1][t], acc[1][t]);
    }
  }
  template <TileFormat F>
  [[gnu::always_inline]] void add_to(float* y, const __m512 (&second)[2][T], const std::byte* tile) const {
    for (int h = 0; h < 2; ++h) {
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        float* out = y + kTileRows * t + 16 * h;
        _mm512_store_ps(out, add_group<F>(_mm512_load_ps(out), _mm512_load_ps(sums[h][t]), second[h][t], tile, h));
      }
    }
  }
};

template <int T>
[[gnu::always_inline]] inline void store_sums(const __m512 (&y)[2][T], BlockSums& sums) {
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < 2; ++h) _mm512_store_ps(&sums.y[t][16 * h], y[h][t]);
  }
}

// The loops of all of them. Kernel gives:
//   few<F, T>(args, tiles of the block, token, y)       T <= kFew tokens straight from the planes, all groups
//   Unpacked<F>; unpack<F>(tile, unpacked)              a tile made ready for many tokens
//   many<F, T>(unpacked, tile, x of the group, at, y)   adds one group of T <= kMany tokens
template <typename Kernel, TileFormat F>
void multiply_few(const TileMatmulArgs& args, const std::byte* tiles, int64_t token, int64_t count, BlockSums& sums) {
  unroll<Kernel::kFew>([&](auto i) {
    if (count == i + 1) Kernel::template few<F, i + 1>(args, tiles, token, sums);
  });
}

template <typename Kernel, TileFormat F>
void multiply_many(const TileMatmulArgs& args, const std::byte* tiles, int64_t token, int64_t count, BlockSums& sums) {
  typename Kernel::template Unpacked<F> unpacked;
  for (int64_t t = 0; t < count; ++t) {
    for (int h = 0; h < 2; ++h) _mm512_store_ps(&sums.y[t][16 * h], _mm512_setzero_ps());
  }
  for (int64_t g = 0; g < args.x.groups; ++g) {
    const std::byte* tile = tiles + g * tile_bytes(F);
    prefetch_tile(tile + 2 * tile_bytes(F), tile_bytes(F));
    Kernel::template unpack<F>(tile, unpacked);
    // As few runs of tokens as possible, of nearly equal length: a short one wastes the chains it has not.
    const int64_t runs = (count + Kernel::kMany - 1) / Kernel::kMany;
    const int64_t at = g * args.x.token_stride + token;
    int64_t t = 0;
    for (int64_t run = 0; run < runs; ++run) {
      const int64_t length = (count - t) / (runs - run);
      unroll<Kernel::kMany>([&](auto i) __attribute__((always_inline)) {
        if (length == i + 1) Kernel::template many<F, i + 1>(unpacked, tile, args.x, at + t, sums.y[t]);
      });
      t += length;
    }
  }
}

template <typename Kernel, TileFormat F>
void multiply(const TileMatmulArgs& args) {
  BlockSums sums;
  for (int64_t token = 0; token < args.x.tokens; token += kPassTokens) {
    const int64_t count = args.x.tokens - token < kPassTokens ? args.x.tokens - token : kPassTokens;
    for (int64_t block = 0; block < args.row_blocks; ++block) {
      const std::byte* tiles = args.tiles + block * args.x.groups * tile_bytes(F);
      if (count <= Kernel::kFew) {
        multiply_few<Kernel, F>(args, tiles, token, count, sums);
      } else {
        multiply_many<Kernel, F>(args, tiles, token, count, sums);
      }
      store_block(args, block, token, count, sums);
    }
  }
}

template <typename Kernel>
void multiply_any(const TileMatmulArgs& args) {
  switch (args.format) {
    case TileFormat::kInt3:
      return multiply<Kernel, TileFormat::kInt3>(args);
    case TileFormat::kInt4:
      return multiply<Kernel, TileFormat::kInt4>(args);
    case TileFormat::kMxfp4:
      return multiply<Kernel, TileFormat::kMxfp4>(args);
  }
}

}  // namespace
}  // namespace trefoil
