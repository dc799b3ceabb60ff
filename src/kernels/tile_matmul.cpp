#include "kernels/tile_matmul.h"

namespace trefoil {
namespace {

// Intel's processors run vdpbf16ps at a quarter of the rate of their FMA units: there FMA comes first.
#if defined(__x86_64__)
constexpr Impl<TileMatmulFn> kExact[] = {
    {Isa::kAvx512Bf16, tile_matmul_avx512bf16},
    {Isa::kAvx512, tile_matmul_avx512},
    {Isa::kAvx2, tile_matmul_avx2},
    {Isa::kScalar, tile_matmul_scalar},
};
constexpr Impl<TileMatmulFn> kExactIntel[] = {
    {Isa::kAvx512, tile_matmul_avx512},
    {Isa::kAvx512Bf16, tile_matmul_avx512bf16},
    {Isa::kAvx2, tile_matmul_avx2},
    {Isa::kScalar, tile_matmul_scalar},
};
constexpr Impl<TileMatmulFn> kFast[] = {
    {Isa::kAvx512Vnni, tile_matmul_avx512vnni},
    {Isa::kAvx2, tile_matmul_avx2},
    {Isa::kScalar, tile_matmul_scalar},
};
#else
constexpr Impl<TileMatmulFn> kExact[] = {{Isa::kScalar, tile_matmul_scalar}};
constexpr Impl<TileMatmulFn> kFast[] = {{Isa::kScalar, tile_matmul_scalar}};
#endif

std::span<const Impl<TileMatmulFn>> exact_impls() {
#if defined(__x86_64__)
  if (cpu_vendor() == CpuVendor::kIntel) return kExactIntel;
#endif
  return kExact;
}

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
