// The sizes of code_tiles.h, for the kernels that read tiles.
#pragma once

#include <cstdint>

namespace trefoil {

enum class TileFormat { kInt3, kInt4, kMxfp4 };

constexpr int64_t kTileRows = 32;
constexpr int64_t kTileCols = 64;
constexpr int64_t kTileScaleBytes = 64;

constexpr int64_t plane_bytes(TileFormat format) {
  return format == TileFormat::kInt3 ? 3 * 64 : 4 * 64;  // of one (c, h)
}
constexpr int64_t tile_bytes(TileFormat format) {
  return 4 * plane_bytes(format) + kTileScaleBytes;
}

}  // namespace trefoil
