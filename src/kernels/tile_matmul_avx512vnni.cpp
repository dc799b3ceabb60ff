// kFast8 and kFast16: codes as unsigned bytes times activations as signed ones, four at a time (vpdpbusd). A code is its
// value plus an offset (4, 8, and 12 for twice an E2M1 value); the sums start at minus the offset times the sum of the
// activations.
#include "kernels/tile_matmul_avx512.h"

namespace trefoil {
namespace {

constexpr int kSteps = 8;  // of a column half: o

alignas(16) constexpr uint8_t kTwiceE2m1Plus12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// Column halves that have a scale, and so sums, of their own.
template <TileFormat F>
constexpr int halves_of() {
  return F == TileFormat::kMxfp4 ? 2 : 1;
}

template <TileFormat F, int O>
[[gnu::always_inline]] inline __m512i codes(const Planes<F>& planes) {
  const __m512i code = _mm512_and_si512(field<F, O>(planes), _mm512_set1_epi8(F == TileFormat::kInt3 ? 7 : 15));
  if constexpr (F != TileFormat::kMxfp4) return code;
  const __m512i table = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kTwiceE2m1Plus12)));
  return _mm512_shuffle_epi8(table, code);
}

// gcc 12 copies registers around its intrinsic, which costs half of the speed.
[[gnu::always_inline]] inline __m512i dot4(__m512i acc, __m512i codes, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(x));
  return acc;
}
[[gnu::always_inline]] inline __m512i dot4_broadcast(__m512i acc, __m512i codes, const uint32_t* x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(codes), "m"(*x));
  return acc;
}

// What a sum over column half c (of all of the group, when the halves share a scale) starts with, for bytes `part`: the
// offset times the negated sum of the activations.
template <TileFormat F>
[[gnu::always_inline]] inline __m512i start(const int32_t* sums, int part, int c) {
  const __m512i sum = _mm512_set1_epi32(sums[kSumsOfLow * part + (halves_of<F>() == 2 ? 1 + c : 0)]);
  if constexpr (F == TileFormat::kMxfp4) return _mm512_add_epi32(_mm512_slli_epi32(sum, 3), _mm512_slli_epi32(sum, 2));
  return _mm512_slli_epi32(sum, F == TileFormat::kInt3 ? 2 : 3);
}

template <TileFormat F>
[[gnu::always_inline]] inline __m512 add_half(__m512 y, __m512i sum, const std::byte* tile, int c, int h, float s) {
  const float factor = F == TileFormat::kMxfp4 ? s * 0.5f : s;
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(tile_scale<F>(tile, c, h), _mm512_set1_ps(factor)), y);
}

[[gnu::always_inline]] inline __m512i join(__m512i hi, __m512i lo) {
  return _mm512_add_epi32(_mm512_slli_epi32(hi, 8), lo);
}

// Parts: byte forms of an activation, 1 (kFast8) or 2 (kFast16: hi, lo).
template <int Parts>
struct FastKernel {
  static constexpr int kFew = 4;
  static constexpr int kMany = Parts == 1 ? 12 : 6;  // 24 registers of sums
  static constexpr int kWords = 16 * Parts;

  // Sums of one row half, per column half that has a scale of its own.
  template <TileFormat F, int T>
  [[gnu::always_inline]] static void half(const std::byte* tile, int h, const uint32_t* x, const int32_t* sums,
                                          const float* scale, __m512 (&y)[2][T]) {
    constexpr int kHalves = halves_of<F>();
    __m512i acc[2][Parts][T];
    unroll<2 * Parts * T>([&](auto i) __attribute__((always_inline)) {
      constexpr int c = i / (Parts * T), part = i / T % Parts, t = i % T;
      acc[c][part][t] = c < kHalves ? start<F>(sums + kPackedSums * t, part, c) : _mm512_setzero_si512();
    });
    const Planes<F> planes[2] = {Planes<F>::load(planes_of<F>(tile, 0, h)), Planes<F>::load(planes_of<F>(tile, 1, h))};
    unroll<kSteps>([&](auto o) __attribute__((always_inline)) {
      unroll<2>([&](auto c) __attribute__((always_inline)) {
        const __m512i w = codes<F, o>(planes[c]);
        unroll<Parts * T>([&](auto i) __attribute__((always_inline)) {
          constexpr int part = i / T, t = i % T;
          acc[c][part][t] = dot4_broadcast(acc[c][part][t], w, x + kWords * t + 16 * part + kSteps * c + o);
        });
      });
    });
    unroll<T>([&](auto t) __attribute__((always_inline)) {
      __m512i sum[2];
      for (int c = 0; c < 2; ++c) {
        if constexpr (Parts == 2) {
          sum[c] = join(acc[c][0][t], acc[c][1][t]);
        } else {
          sum[c] = acc[c][0][t];
        }
      }
      if constexpr (kHalves == 1) {
        y[h][t] = add_half<F>(y[h][t], _mm512_add_epi32(sum[0], sum[1]), tile, 0, h, scale[t]);
      } else {
        y[h][t] = add_half<F>(add_half<F>(y[h][t], sum[0], tile, 0, h, scale[t]), sum[1], tile, 1, h, scale[t]);
      }
    });
  }

  template <TileFormat F, int T>
  static void few(const TileMatmulArgs& args, const std::byte* tiles, int64_t token, BlockSums& sums) {
    __m512 y[2][T];
    for (int t = 0; t < T; ++t) y[0][t] = y[1][t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < args.x.groups; ++g) {
      const std::byte* tile = tiles + g * tile_bytes(F);
      if (args.prefetch_tiles > 0) prefetch_tile(tile + args.prefetch_tiles * tile_bytes(F), tile_bytes(F));
      const int64_t at = g * args.x.token_stride + token;
      for (int h = 0; h < 2; ++h) {
        half<F, T>(tile, h, args.x.values + at * kWords, args.x.sums + at * kPackedSums, args.x.scale + at, y);
      }
    }
    store_sums(y, sums);
  }

  template <TileFormat F>
  struct Unpacked {
    __m512i w[2][kSteps][2];  // [c][o][h]
    __m512 scale[2][2];       // [c][h]
  };

  template <TileFormat F>
  static void unpack(const std::byte* tile, Unpacked<F>& out) {
    for (int c = 0; c < 2; ++c) {
      for (int h = 0; h < 2; ++h) {
        const Planes<F> planes = Planes<F>::load(planes_of<F>(tile, c, h));
        unroll<kSteps>([&](auto o) __attribute__((always_inline)) { out.w[c][o][h] = codes<F, o>(planes); });
        out.scale[c][h] = tile_scale<F>(tile, c, h);
      }
    }
  }

  template <TileFormat F, int T>
  static void many(const Unpacked<F>& unpacked, const std::byte*, const PackedView& x, int64_t at, float* y) {
    constexpr int kHalves = halves_of<F>();
    const uint32_t* words = x.values + at * kWords;
    __m512i acc[Parts][2][T];
    for (int c = 0; c < 2; ++c) {
      if (c < kHalves) {
        unroll<Parts * T>([&](auto i) __attribute__((always_inline)) {
          constexpr int part = i / T, t = i % T;
          acc[part][0][t] = acc[part][1][t] = start<F>(x.sums + (at + t) * kPackedSums, part, c);
        });
      }
#pragma GCC unroll 8
      for (int o = 0; o < kSteps; ++o) {
        const __m512i w0 = unpacked.w[c][o][0], w1 = unpacked.w[c][o][1];
        unroll<Parts * T>([&](auto i) __attribute__((always_inline)) {
          constexpr int part = i / T, t = i % T;
          const __m512i four = _mm512_set1_epi32(static_cast<int>(words[kWords * t + 16 * part + kSteps * c + o]));
          acc[part][0][t] = dot4(acc[part][0][t], w0, four);
          acc[part][1][t] = dot4(acc[part][1][t], w1, four);
        });
      }
      if (c + 1 < 2 && kHalves == 1) continue;
      unroll<2 * T>([&](auto i) __attribute__((always_inline)) {
        constexpr int h = i / T, t = i % T;
        __m512i sum = acc[0][h][t];
        if constexpr (Parts == 2) sum = join(acc[0][h][t], acc[1][h][t]);
        const float s = F == TileFormat::kMxfp4 ? x.scale[at + t] * 0.5f : x.scale[at + t];
        const __m512 scale = _mm512_mul_ps(unpacked.scale[kHalves == 1 ? 0 : c][h], _mm512_set1_ps(s));
        float* out = y + kTileRows * t + 16 * h;
        _mm512_store_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, _mm512_load_ps(out)));
      });
    }
  }
};

}  // namespace

void tile_matmul_avx512vnni(const TileMatmulArgs& args) noexcept {
  if (args.x.mode == TileMode::kFast8) {
    multiply_any<FastKernel<1>>(args);
  } else {
    multiply_any<FastKernel<2>>(args);
  }
}

}  // namespace trefoil
