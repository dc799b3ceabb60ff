// Eight rows a register. kExact: a field of a byte is shifted to the low bits of its lane and looks up its value among
// eight (vpermps), two fused multiply-adds a pair in the order of the contract. kFast8, kFast16: vpmaddubsw sums pairs in
// 16 bits over a column half and vpmaddwd widens them.
//
// Legend: F tile format; c column half, q quarter of the tile's rows (eight of them), o field, j byte of a lane.
#include <immintrin.h>

#include "kernels/tile_matmul_impl.h"

namespace trefoil {
namespace {

constexpr int kQuarters = 4;

struct Sums {
  __m256 y[kQuarters];
};

inline __m256i load_plane(const std::byte* tile, TileFormat format, int c, int q, int plane) {
  const std::byte* at = tile + (2 * c + q / 2) * plane_bytes(format) + 64 * plane + 32 * (q % 2);
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
}

__m256 scale_of(TileFormat format, const std::byte* tile, int c, int q) {
  const std::byte* scales = tile + 4 * plane_bytes(format);
  if (format == TileFormat::kMxfp4) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + 32 * c + 8 * q)));
    const __m256i is_zero = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
    const __m256i subnormal = _mm256_and_si256(is_zero, _mm256_set1_epi32(0x00400000));  // 2^-127
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(e, 23), subnormal));
  }
  const __m128i bf16 = _mm_load_si128(reinterpret_cast<const __m128i*>(scales + 16 * q));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

// Eight fields of 32 bytes each, a code in each byte.
template <TileFormat F>
inline void byte_codes(const std::byte* tile, int c, int q, __m256i (&code)[8]) {
  if constexpr (F == TileFormat::kInt3) {
    const __m256i p0 = load_plane(tile, F, c, q, 0), p1 = load_plane(tile, F, c, q, 1),
                  p2 = load_plane(tile, F, c, q, 2);
    const __m256i seven = _mm256_set1_epi8(7), three = _mm256_set1_epi8(3), four = _mm256_set1_epi8(4);
    const __m256i planes[3] = {p0, p1, p2};
    for (int i = 0; i < 3; ++i) {
      code[2 * i] = _mm256_and_si256(planes[i], seven);
      code[2 * i + 1] = _mm256_and_si256(_mm256_srli_epi16(planes[i], 3), seven);
    }
    code[6] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(p0, 6), three),
                              _mm256_and_si256(_mm256_srli_epi16(p2, 4), four));
    code[7] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(p1, 6), three),
                              _mm256_and_si256(_mm256_srli_epi16(p2, 5), four));
  } else {
    const __m256i fifteen = _mm256_set1_epi8(15);
    for (int i = 0; i < 4; ++i) {
      const __m256i plane = load_plane(tile, F, c, q, i);
      code[2 * i] = _mm256_and_si256(plane, fifteen);
      code[2 * i + 1] = _mm256_and_si256(_mm256_srli_epi16(plane, 4), fifteen);
    }
    if constexpr (F == TileFormat::kMxfp4) {
      // Twice the E2M1 value, plus 12.
      const __m256i table = _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12, 13, 14, 15,
                                             16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
      for (__m256i& value : code) value = _mm256_shuffle_epi8(table, value);
    }
  }
}

template <TileFormat F>
constexpr int offset_of() {
  return F == TileFormat::kInt3 ? 4 : F == TileFormat::kInt4 ? 8 : 12;
}

// Sums of codes times bytes over a column half. Two products of a pair are at most 2 * 24 * 128 = 6144, four of them fit
// 16 bits.
inline __m256i dot_half(const __m256i (&code)[8], const uint32_t* x) {
  __m256i total = _mm256_setzero_si256();
  for (int begin = 0; begin < 8; begin += 4) {
    __m256i sum = _mm256_setzero_si256();
    for (int o = begin; o < begin + 4; ++o) {
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(code[o], _mm256_set1_epi32(static_cast<int>(x[o]))));
    }
    total = _mm256_add_epi32(total, _mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
  }
  return total;
}

template <TileFormat F, int Parts>
void fast_group(const std::byte* tile, const PackedView& view, int64_t at, Sums& sums) {
  constexpr bool kHalves = F == TileFormat::kMxfp4;
  const uint32_t* x = view.values + at * 16 * Parts;
  const int32_t* start = view.sums + at * kPackedSums;
  const float s = kHalves ? view.scale[at] * 0.5f : view.scale[at];
  for (int q = 0; q < kQuarters; ++q) {
    __m256i sum[2];
    for (int c = 0; c < 2; ++c) {
      __m256i code[8];
      byte_codes<F>(tile, c, q, code);
      sum[c] = _mm256_add_epi32(dot_half(code, x + 8 * c), _mm256_set1_epi32(offset_of<F>() * start[1 + c]));
      if constexpr (Parts == 2) {
        const __m256i lo = _mm256_add_epi32(dot_half(code, x + 16 + 8 * c),
                                            _mm256_set1_epi32(offset_of<F>() * start[kSumsOfLow + 1 + c]));
        sum[c] = _mm256_add_epi32(_mm256_slli_epi32(sum[c], 8), lo);
      }
    }
    if constexpr (!kHalves) sum[0] = _mm256_add_epi32(sum[0], sum[1]);
    for (int c = 0; c < (kHalves ? 2 : 1); ++c) {
      const __m256 scale = _mm256_mul_ps(scale_of(F, tile, c, q), _mm256_set1_ps(s));
      sums.y[q] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[c]), scale, sums.y[q]);
    }
  }
}

// The values of byte j of field o in f32.
template <TileFormat F>
inline __m256 lane_values(const __m256i& code, int j) {
  const __m256i index = _mm256_srlv_epi32(code, _mm256_set1_epi32(8 * j));
  if constexpr (F == TileFormat::kInt3) {
    return _mm256_permutevar8x32_ps(_mm256_setr_ps(-4, -3, -2, -1, 0, 1, 2, 3), index);
  } else if constexpr (F == TileFormat::kInt4) {
    const __m256i low = _mm256_and_si256(index, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(low, _mm256_set1_epi32(8)));
  } else {
    const __m256 magnitude = _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), index);
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(index, _mm256_set1_epi32(8)), 28);
    return _mm256_or_ps(magnitude, _mm256_castsi256_ps(sign));
  }
}

// As byte_codes, but for kMxfp4 the codes themselves.
template <TileFormat F>
inline void plain_codes(const std::byte* tile, int c, int q, __m256i (&code)[8]) {
  byte_codes<F == TileFormat::kMxfp4 ? TileFormat::kInt4 : F>(tile, c, q, code);
}

template <TileFormat F>
void exact_group(const std::byte* tile, const PackedView& view, int64_t at, Sums& sums) {
  const uint32_t* x = view.values + at * 32;
  for (int q = 0; q < kQuarters; ++q) {
    __m256 acc[2];
    for (int c = 0; c < 2; ++c) {
      __m256i code[8];
      plain_codes<F>(tile, c, q, code);
      acc[c] = _mm256_setzero_ps();
      for (int o = 0; o < 8; ++o) {
        for (int parity = 0; parity < 2; ++parity) {
          const __m256i pair = _mm256_set1_epi32(static_cast<int>(x[2 * (8 * c + o) + parity]));
          const __m256 high = _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(-65536)));
          const __m256 low = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
          acc[c] = _mm256_fmadd_ps(lane_values<F>(code[o], parity + 2), high, acc[c]);
          acc[c] = _mm256_fmadd_ps(lane_values<F>(code[o], parity), low, acc[c]);
        }
      }
    }
    if constexpr (F == TileFormat::kMxfp4) {
      for (int c = 0; c < 2; ++c) sums.y[q] = _mm256_fmadd_ps(acc[c], scale_of(F, tile, c, q), sums.y[q]);
    } else {
      sums.y[q] = _mm256_fmadd_ps(_mm256_add_ps(acc[0], acc[1]), scale_of(F, tile, 0, q), sums.y[q]);
    }
  }
}

using GroupFn = void(const std::byte* tile, const PackedView& view, int64_t at, Sums& sums);

template <TileFormat F>
GroupFn* group_function(TileMode mode) {
  if (mode == TileMode::kExact) return exact_group<F>;
  return mode == TileMode::kFast8 ? fast_group<F, 1> : fast_group<F, 2>;
}

GroupFn* group_function(TileFormat format, TileMode mode) {
  switch (format) {
    case TileFormat::kInt3:
      return group_function<TileFormat::kInt3>(mode);
    case TileFormat::kInt4:
      return group_function<TileFormat::kInt4>(mode);
    default:
      return group_function<TileFormat::kMxfp4>(mode);
  }
}

inline void prefetch_tile(const std::byte* tile, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(reinterpret_cast<const char*>(tile + at), _MM_HINT_T1);
}

void store_rows(const TileMatmulArgs& args, int64_t block, int64_t token, const Sums& sums) {
  float* out = args.y + token * args.y_stride + block * kTileRows;
  const int64_t count = args.rows - block * kTileRows;
  if (count >= kTileRows) {
    for (int q = 0; q < kQuarters; ++q) _mm256_storeu_ps(out + 8 * q, sums.y[q]);
    return;
  }
  alignas(32) float rows[kTileRows];
  for (int q = 0; q < kQuarters; ++q) _mm256_store_ps(rows + 8 * q, sums.y[q]);
  for (int64_t r = 0; r < count; ++r) out[r] = rows[r];
}

}  // namespace

void tile_matmul_avx2(const TileMatmulArgs& args) noexcept {
  GroupFn* const add_group = group_function(args.format, args.x.mode);
  const int64_t bytes = tile_bytes(args.format);
  for (int64_t block = 0; block < args.row_blocks; ++block) {
    const std::byte* tiles = args.tiles + block * args.x.groups * bytes;
    for (int64_t token = 0; token < args.x.tokens; ++token) {
      Sums sums;
      for (__m256& y : sums.y) y = _mm256_setzero_ps();
      for (int64_t g = 0; g < args.x.groups; ++g) {
        const std::byte* tile = tiles + g * bytes;
        if (args.prefetch_tiles > 0 && token == 0) prefetch_tile(tile + args.prefetch_tiles * bytes, bytes);
        add_group(tile, args.x, g * args.x.token_stride + token, sums);
      }
      store_rows(args, block, token, sums);
    }
  }
}

}  // namespace trefoil
