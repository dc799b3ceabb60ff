// kExact with fused multiply-adds: the values of codes looked up as f32 (vpermps uses the low four bits of a lane, so what
// lies above a code needs no mask). For processors without vdpbf16ps, and for those that run it at a quarter of the FMA
// rate (Intel's: 2 cycles for 32 products, an FMA unit pair does 64).
#include "kernels/tile_matmul_avx512.h"

namespace trefoil {
namespace {

constexpr int kSteps = 16;  // of a column half: (o, parity), each two products

alignas(64) constexpr float kInt3Values[16] = {-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3};
alignas(64) constexpr float kInt4Values[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
alignas(64) constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

template <TileFormat F>
[[gnu::always_inline]] inline __m512 value_table() {
  return _mm512_load_ps(F == TileFormat::kInt3 ? kInt3Values : F == TileFormat::kInt4 ? kInt4Values : kE2m1Values);
}

// The values of byte J of field O.
template <TileFormat F, int O, int J>
[[gnu::always_inline]] inline __m512 values(const Planes<F>& planes, __m512 table) {
  if constexpr (F == TileFormat::kInt3 && O >= 6) {
    return _mm512_permutexvar_ps(shift_lane_right<8 * J>(field<F, O>(planes)), table);
  } else if constexpr (F == TileFormat::kInt3) {
    return _mm512_permutexvar_ps(shift_lane_right<8 * J + 3 * (O % 2)>(planes.p[O / 2]), table);
  } else {
    return _mm512_permutexvar_ps(shift_lane_right<8 * J + 4 * (O % 2)>(planes.p[O / 2]), table);
  }
}

// The two activations of each word of a group, as f32.
struct WideTokens {
  alignas(64) float high[32];
  alignas(64) float low[32];

  [[gnu::always_inline]] void widen(const uint32_t* words) {
    for (int i = 0; i < 2; ++i) {
      const __m512i pairs = _mm512_loadu_si512(words + 16 * i);
      _mm512_store_si512(high + 16 * i, _mm512_and_si512(pairs, _mm512_set1_epi32(-65536)));
      _mm512_store_si512(low + 16 * i, _mm512_slli_epi32(pairs, 16));
    }
    // Broadcasts shall load from here: taken out of registers they would compete with the lookups for one port.
    asm volatile("" ::"r"(this) : "memory");
  }
};

struct WideKernel {
  static constexpr int kFew = 4;
  static constexpr int kMany = 8;  // with 12 gcc moves and spills

  template <TileFormat F, int T, int H>
  [[gnu::always_inline]] static void halves(const std::byte* tile, int h, const WideTokens (&x)[T], __m512 table,
                                            __m512 (&y)[2][T]) {
    Planes<F> planes[2][H];
    __m512 acc[2][H][T];
    unroll<2 * H>([&](auto i) __attribute__((always_inline)) {
      planes[i / H][i % H] = Planes<F>::load(planes_of<F>(tile, i / H, h + i % H));
      for (int t = 0; t < T; ++t) acc[i / H][i % H][t] = _mm512_setzero_ps();
    });
    unroll<kSteps>([&](auto step) __attribute__((always_inline)) {
      unroll<4 * H>([&](auto i) __attribute__((always_inline)) {
        // The high halves of all chains, then the low ones.
        constexpr int is_low = i / (2 * H), c = i / H % 2, row_half = i % H;
        const __m512 w = values<F, step / 2, step % 2 + 2 * (1 - is_low)>(planes[c][row_half], table);
        unroll<T>([&](auto t) __attribute__((always_inline)) {
          const float* value = (is_low ? x[t].low : x[t].high) + kSteps * c + step;
          acc[c][row_half][t] = _mm512_fmadd_ps(w, _mm512_set1_ps(*value), acc[c][row_half][t]);
        });
      });
    });
    for (int i = 0; i < H; ++i) {
      for (int t = 0; t < T; ++t) y[h + i][t] = add_group<F>(y[h + i][t], acc[0][i][t], acc[1][i][t], tile, h + i);
    }
  }

  template <TileFormat F, int T>
  static void few(const TileMatmulArgs& args, const std::byte* tiles, int64_t token, BlockSums& sums) {
    const __m512 table = value_table<F>();
    __m512 y[2][T];
    for (int t = 0; t < T; ++t) y[0][t] = y[1][t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < args.x.groups; ++g) {
      const std::byte* tile = tiles + g * tile_bytes(F);
      prefetch_tile(tile + args.prefetch_tiles * tile_bytes(F), tile_bytes(F));
      const uint32_t* words = args.x.values + (g * args.x.token_stride + token) * 32;
      WideTokens x[T];
      for (int t = 0; t < T; ++t) x[t].widen(words + 32 * t);
      if constexpr (T == 1) {
        halves<F, T, 2>(tile, 0, x, table, y);
      } else {
        halves<F, T, 1>(tile, 0, x, table, y);
        halves<F, T, 1>(tile, 1, x, table, y);
      }
    }
    store_sums(y, sums);
  }

  template <TileFormat F>
  struct Unpacked {
    __m512 w[2][kSteps][2][2];  // [c][step][high, low][h]
  };

  template <TileFormat F>
  static void unpack(const std::byte* tile, Unpacked<F>& out) {
    const __m512 table = value_table<F>();
    for (int c = 0; c < 2; ++c) {
      for (int h = 0; h < 2; ++h) {
        const Planes<F> planes = Planes<F>::load(planes_of<F>(tile, c, h));
        unroll<kSteps>([&](auto step) __attribute__((always_inline)) {
          out.w[c][step][0][h] = values<F, step / 2, step % 2 + 2>(planes, table);
          out.w[c][step][1][h] = values<F, step / 2, step % 2>(planes, table);
        });
      }
    }
  }

  template <int T>
  [[gnu::always_inline]] static void half(const __m512 (&w)[kSteps][2][2], const WideTokens (&x)[T], int c,
                                          __m512 (&acc)[2][T]) {
    for (int t = 0; t < T; ++t) acc[0][t] = acc[1][t] = _mm512_setzero_ps();
#pragma GCC unroll 2
    for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 2
      for (int is_low = 0; is_low < 2; ++is_low) {
        const __m512 w0 = w[step][is_low][0], w1 = w[step][is_low][1];
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
          const __m512 value = _mm512_set1_ps((is_low ? x[t].low : x[t].high)[kSteps * c + step]);
          acc[0][t] = _mm512_fmadd_ps(w0, value, acc[0][t]);
          acc[1][t] = _mm512_fmadd_ps(w1, value, acc[1][t]);
        }
      }
    }
  }

  template <TileFormat F, int T>
  static void many(const Unpacked<F>& unpacked, const std::byte* tile, const PackedView& view, int64_t at, float* y) {
    WideTokens x[T];
    for (int t = 0; t < T; ++t) x[t].widen(view.values + (at + t) * 32);
    FirstHalf<T> first;
    __m512 acc[2][T];
    half<T>(unpacked.w[0], x, 0, acc);
    first.keep(acc);
    half<T>(unpacked.w[1], x, 1, acc);
    first.template add_to<F>(y, acc, tile);
  }
};

}  // namespace

void tile_matmul_avx512(const TileMatmulArgs& args) noexcept {
  multiply_any<WideKernel>(args);
}

}  // namespace trefoil
