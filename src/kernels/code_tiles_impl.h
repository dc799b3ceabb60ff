// The sizes of code_tiles.h, for the kernels that read tiles.
#pragma once

#include <cstddef>
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

// Groups that pack_planes_avx512() takes at once.
constexpr int64_t packed_groups_unit(TileFormat format) {
  return format == TileFormat::kInt3 ? 8 : 2;
}

#if defined(__x86_64__)
// The planes, not the scales, of 32 whole rows and the first `groups` groups of dense codes, rows `stride` bytes apart;
// `groups` is a multiple of packed_groups_unit(). tiles: of one row block, 64-byte aligned.
void pack_planes_avx512(TileFormat format, const std::byte* codes, int64_t stride, int64_t groups,
                        std::byte* tiles) noexcept;
#endif

}  // namespace trefoil
