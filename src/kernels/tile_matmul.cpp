#include "kernels/tile_matmul.h"

namespace trefoil {
namespace {

constexpr Impl<TileMatmulFn> kExact[] = {
#if defined(__x86_64__)
    {Isa::kAvx512Bf16, tile_matmul_avx512bf16},
    {Isa::kAvx2, tile_matmul_avx2},
#endif
    {Isa::kScalar, tile_matmul_scalar},
};
constexpr Impl<TileMatmulFn> kFast[] = {
#if defined(__x86_64__)
    {Isa::kAvx512Vnni, tile_matmul_avx512vnni},
    {Isa::kAvx2, tile_matmul_avx2},
#endif
    {Isa::kScalar, tile_matmul_scalar},
};

}  // namespace

std::span<const Impl<TileMatmulFn>> tile_matmul_impls(TileMode mode) {
  if (mode == TileMode::kExact) return kExact;
  return kFast;
}

void tile_matmul(const TileMatmulArgs& args) noexcept {
  TileMatmulFn* const run = args.x.mode == TileMode::kExact ? choose(kExact) : choose(kFast);
  run(args);
}

}  // namespace trefoil
