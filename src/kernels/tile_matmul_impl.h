// The implementations of tile_matmul.h, for its dispatch and its tests. Files compiled for one instruction set include
// this header and the intrinsics header and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/code_tiles_impl.h"
#include "kernels/packed_tokens_impl.h"

namespace trefoil {

struct TileMatmulArgs {
  TileFormat format = TileFormat::kInt3;
  const std::byte* tiles = nullptr;  // of the first row block, 64-byte aligned for speed
  int64_t row_blocks = 0;
  int64_t rows = 0;  // 32 * row_blocks, or fewer: rows past it are not written
  PackedView x;
  float* y = nullptr;  // element (t, r) at y[t * y_stride + r]
  int64_t y_stride = 0;
  int64_t prefetch_tiles = 0;  // how far ahead of a few tokens to ask for tiles; 0: the hardware's prefetcher does
};

using TileMatmulFn = void(const TileMatmulArgs& args) noexcept;

void tile_matmul_scalar(const TileMatmulArgs& args) noexcept;
#if defined(__x86_64__)
void tile_matmul_avx2(const TileMatmulArgs& args) noexcept;
void tile_matmul_avx512(const TileMatmulArgs& args) noexcept;      // kExact
void tile_matmul_avx512vnni(const TileMatmulArgs& args) noexcept;  // kFast8, kFast16
void tile_matmul_avx512bf16(const TileMatmulArgs& args) noexcept;  // kExact
#endif

}  // namespace trefoil
