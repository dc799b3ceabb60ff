#include "kernels/tile_matmul.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "base/splitmix64.h"
#include "kernels/packed_tokens.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

#if defined(__x86_64__)
constexpr Impl<TileMatmulFn> kExactWithDot[] = {
    {Isa::kAvx512Bf16, tile_matmul_avx512bf16},
    {Isa::kAvx512, tile_matmul_avx512},
    {Isa::kAvx2, tile_matmul_avx2},
    {Isa::kScalar, tile_matmul_scalar},
};
constexpr Impl<TileMatmulFn> kExactByFma[] = {
    {Isa::kAvx512, tile_matmul_avx512},
    {Isa::kAvx512Bf16, tile_matmul_avx512bf16},
    {Isa::kAvx2, tile_matmul_avx2},
    {Isa::kScalar, tile_matmul_scalar},
};
constexpr Impl<TileMatmulFn> kExactWithoutDot[] = {
    {Isa::kAvx512, tile_matmul_avx512},
    {Isa::kAvx2, tile_matmul_avx2},
    {Isa::kScalar, tile_matmul_scalar},
};
constexpr Impl<TileMatmulFn> kFast[] = {
    {Isa::kAvx512Vnni, tile_matmul_avx512vnni},
    {Isa::kAvx2, tile_matmul_avx2},
    {Isa::kScalar, tile_matmul_scalar},
};

// Whether this processor's vdpbf16ps sums as the contract says: the manuals of its makers do, the definition of the
// contract is what was measured on one of them. Tried once on a tile of every code and activations of many sizes.
bool dot_keeps_the_contract() {
  constexpr int64_t kGroups = 8;
  alignas(64) std::byte tiles[kGroups * tile_bytes(TileFormat::kInt3)];
  std::vector<float> x(static_cast<size_t>(kGroups * kTileCols));
  SplitMix64 random(1);
  for (std::byte& byte : tiles) byte = static_cast<std::byte>(random.next());
  for (int64_t g = 0; g < kGroups; ++g) {
    std::byte* scales = tiles + (g + 1) * tile_bytes(TileFormat::kInt3) - kTileScaleBytes;
    for (int64_t row = 0; row < kTileRows; ++row)
      store(scales + 2 * row, f32_to_bf16(0.001f * static_cast<float>(row)));
  }
  for (float& value : x) {
    const uint64_t bits = random.next();
    value = std::ldexp(static_cast<float>(bits >> 40) * 0x1p-23f - 1, static_cast<int>(bits % 24) - 12);
  }
  PackedTokens tokens;
  tokens.pack(TileMode::kExact, x, 1, kGroups * kTileCols);
  float expected[kTileRows], found[kTileRows];
  const auto run = [&](TileMatmulFn* multiply, float* y) {
    multiply({.tiles = tiles, .row_blocks = 1, .rows = kTileRows, .x = tokens.view(), .y = y, .y_stride = kTileRows});
  };
  run(tile_matmul_scalar, expected);
  run(tile_matmul_avx512bf16, found);
  return std::memcmp(expected, found, sizeof(found)) == 0;
}

// Intel's processors run vdpbf16ps at a quarter of the rate of their FMA units: there FMA comes first.
std::span<const Impl<TileMatmulFn>> exact_impls() {
  static const bool usable = detected_isa() >= Isa::kAvx512Bf16 && dot_keeps_the_contract();
  if (!usable) return kExactWithoutDot;
  if (cpu_vendor() == CpuVendor::kIntel) return kExactByFma;
  return kExactWithDot;
}
#else
constexpr Impl<TileMatmulFn> kFast[] = {{Isa::kScalar, tile_matmul_scalar}};

std::span<const Impl<TileMatmulFn>> exact_impls() {
  return kFast;
}
#endif

// Measured (bench/README.md): Zen 4's prefetcher keeps up with fast8 and is disturbed by hints; Intel's stops at the end
// of every 4 KiB page and needs them in every mode.
int64_t prefetch_distance(TileMode mode) {
  if (cpu_vendor() == CpuVendor::kIntel) return 16;
  return mode == TileMode::kFast8 ? 0 : 8;
}

}  // namespace

std::span<const Impl<TileMatmulFn>> tile_matmul_impls(TileMode mode) {
  if (mode == TileMode::kExact) return exact_impls();
  return kFast;
}

void tile_matmul(const TileMatmulArgs& args) noexcept {
  TileMatmulArgs with_hints = args;
  if (with_hints.prefetch_tiles == 0) with_hints.prefetch_tiles = prefetch_distance(args.x.mode);
  choose(tile_matmul_impls(args.x.mode))(with_hints);
}

}  // namespace trefoil
