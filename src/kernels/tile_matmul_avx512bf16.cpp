// kExact: a field of 16 bits a lane indexes a table of bf16 values (vpermw uses the low five bits of a lane, so what lies
// above a code needs no mask), and vdpbf16ps multiplies pairs of them with pairs of activations.
#include "kernels/tile_matmul_avx512.h"

namespace trefoil {
namespace {

constexpr int kSteps = 16;  // of a column half: (o, parity)

alignas(64) constexpr uint16_t kInt3Values[8] = {0xC080, 0xC040, 0xC000, 0xBF80, 0x0000, 0x3F80, 0x4000, 0x4040};
alignas(64) constexpr uint16_t kInt4Values[16] = {0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80,
                                                  0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0};
alignas(64) constexpr uint16_t kE2m1Values[16] = {0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0,
                                                  0x8000, 0xBF00, 0xBF80, 0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0};

// The values of all codes, repeated to fill the 32 places of the table.
template <TileFormat F>
[[gnu::always_inline]] inline __m512i value_table() {
  if constexpr (F == TileFormat::kInt3) {
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kInt3Values)));
  } else {
    const uint16_t* values = F == TileFormat::kInt4 ? kInt4Values : kE2m1Values;
    return _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(values)));
  }
}

template <TileFormat F, int Step>
[[gnu::always_inline]] inline __m512bh values(const Planes<F>& planes, __m512i table) {
  return reinterpret_cast<__m512bh>(
      _mm512_permutexvar_epi16(shift_right<8 * (Step % 2)>(field<F, Step / 2>(planes)), table));
}

[[gnu::always_inline]] inline __m512bh pair_of(const uint32_t* x) {
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(*x)));
}

struct ExactKernel {
  static constexpr int kFew = 4;
  static constexpr int kMany = 12;

  // Rows of H halves from h on.
  template <TileFormat F, int T, int H>
  [[gnu::always_inline]] static void halves(const std::byte* tile, int h, const uint32_t* x, __m512i table,
                                            __m512 (&y)[2][T]) {
    Planes<F> planes[2][H];
    __m512 acc[2][H][T];
    unroll<2 * H>([&](auto i) __attribute__((always_inline)) {
      planes[i / H][i % H] = Planes<F>::load(planes_of<F>(tile, i / H, h + i % H));
      for (int t = 0; t < T; ++t) acc[i / H][i % H][t] = _mm512_setzero_ps();
    });
    unroll<kSteps>([&](auto step) __attribute__((always_inline)) {
      unroll<2 * H>([&](auto i) __attribute__((always_inline)) {
        constexpr int c = i / H;
        const __m512bh w = values<F, step>(planes[c][i % H], table);
        unroll<T>([&](auto t) __attribute__((always_inline)) {
          acc[c][i % H][t] = _mm512_dpbf16_ps(acc[c][i % H][t], w, pair_of(x + 32 * t + kSteps * c + step));
        });
      });
    });
    for (int i = 0; i < H; ++i) {
      for (int t = 0; t < T; ++t) y[h + i][t] = add_group<F>(y[h + i][t], acc[0][i][t], acc[1][i][t], tile, h + i);
    }
  }

  template <TileFormat F, int T>
  static void few(const TileMatmulArgs& args, const std::byte* tiles, int64_t token, BlockSums& sums) {
    const __m512i table = value_table<F>();
    __m512 y[2][T];
    for (int t = 0; t < T; ++t) y[0][t] = y[1][t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < args.x.groups; ++g) {
      const std::byte* tile = tiles + g * tile_bytes(F);
      prefetch_tile(tile + args.prefetch_tiles * tile_bytes(F), tile_bytes(F));
      const uint32_t* x = args.x.values + (g * args.x.token_stride + token) * 32;
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
    alignas(64) __m512bh w[2][kSteps][2];  // [c][step][h]
  };

  template <TileFormat F>
  static void unpack(const std::byte* tile, Unpacked<F>& out) {
    const __m512i table = value_table<F>();
    for (int c = 0; c < 2; ++c) {
      for (int h = 0; h < 2; ++h) {
        const Planes<F> planes = Planes<F>::load(planes_of<F>(tile, c, h));
        unroll<kSteps>([&](auto step)
                           __attribute__((always_inline)) { out.w[c][step][h] = values<F, step>(planes, table); });
      }
    }
  }

  template <int T>
  [[gnu::always_inline]] static void half(const __m512bh (&w)[kSteps][2], const uint32_t* x, __m512 (&acc)[2][T]) {
    for (int t = 0; t < T; ++t) acc[0][t] = acc[1][t] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step) {
      const __m512bh w0 = w[step][0], w1 = w[step][1];
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        const __m512bh pair = pair_of(x + 32 * t + step);
        acc[0][t] = _mm512_dpbf16_ps(acc[0][t], w0, pair);
        acc[1][t] = _mm512_dpbf16_ps(acc[1][t], w1, pair);
      }
    }
  }

  template <TileFormat F, int T>
  static void many(const Unpacked<F>& unpacked, const std::byte* tile, const PackedView& x, int64_t at, float* y) {
    const uint32_t* words = x.values + at * 32;
    FirstHalf<T> first;
    __m512 acc[2][T];
    half<T>(unpacked.w[0], words, acc);
    first.keep(acc);
    half<T>(unpacked.w[1], words + kSteps, acc);
    first.template add_to<F>(y, acc, tile);
  }
};

}  // namespace

void tile_matmul_avx512bf16(const TileMatmulArgs& args) noexcept {
  multiply_any<ExactKernel>(args);
}

}  // namespace trefoil
