#include "kernels/code_tiles.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/cpu.h"
#include "tensor/bf16.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

constexpr int kFields = 8;
constexpr int kHalfCols = 32;

// Eight codes of three bits, in the low 24 bits of `stream`, one in each byte.
uint64_t spread_eight(uint64_t stream) {
  uint64_t x = (stream & 0xFFF) | (stream & 0xFFF000) << 20;
  x = (x & 0x0000003F0000003F) | (x & 0x00000FC000000FC0) << 10;
  return (x & 0x0007000700070007) | (x & 0x0038003800380038) << 5;
}

// The same for eight codes of four bits in 32 bits.
uint64_t spread_eight_nibbles(uint64_t stream) {
  uint64_t x = (stream & 0xFFFF) | (stream & 0xFFFF0000) << 16;
  x = (x & 0x000000FF000000FF) | (x & 0x0000FF000000FF00) << 8;
  return (x & 0x000F000F000F000F) | (x & 0x00F000F000F000F0) << 4;
}

// 32 codes of one row, from column `first`, as bytes in column order.
void read_codes(const CodeRows& rows, const std::byte* row, int64_t first, uint64_t (&codes)[4]) {
  if (rows.format != TileFormat::kInt3) {
    for (int i = 0; i < 4; ++i) codes[i] = spread_eight_nibbles(load<uint32_t>(row + first / 2 + 4 * i));
    return;
  }
  if (rows.layout == PackedLayout::kDense) {
    const std::byte* at = row + first / 8 * 3;
    for (int i = 0; i < 4; ++i) {
      codes[i] = spread_eight(load<uint16_t>(at + 3 * i) | static_cast<uint64_t>(at[3 * i + 2]) << 16);
    }
    return;
  }
  for (int i = 0; i < 32; ++i) {  // ten codes a word
    const int64_t col = first + i;
    const uint64_t code = (load<uint32_t>(row + col / 10 * 4) >> (3 * (col % 10))) & 7;
    codes[i / 8] = (i % 8 == 0 ? 0 : codes[i / 8]) | code << (8 * (i % 8));
  }
}

uint32_t field_of(const uint64_t (&codes)[4], int o) {
  return static_cast<uint32_t>(codes[o / 2] >> (32 * (o % 2)));
}

// The planes' four bytes of one row.
void write_planes(TileFormat format, const uint64_t (&codes)[4], std::byte* out) {
  uint32_t f[kFields];
  for (int o = 0; o < kFields; ++o) f[o] = field_of(codes, o);
  if (format == TileFormat::kInt3) {
    const uint32_t low = 0x03030303, high = 0x01010101;
    store(out, f[0] | f[1] << 3 | (f[6] & low) << 6);
    store(out + 64, f[2] | f[3] << 3 | (f[7] & low) << 6);
    store(out + 128, f[4] | f[5] << 3 | (f[6] >> 2 & high) << 6 | (f[7] >> 2 & high) << 7);
    return;
  }
  for (int p = 0; p < 4; ++p) store(out + 64 * p, f[2 * p] | f[2 * p + 1] << 4);
}

uint64_t code_of_zero(TileFormat format) {
  constexpr uint64_t kEveryByte = 0x0101010101010101;
  return kEveryByte * (format == TileFormat::kInt3 ? 4u : format == TileFormat::kInt4 ? 8u : 0u);
}

// The scales of rows [first, first + count) in one group, of a whole row block or its end.
void write_scales(const CodeRows& rows, int64_t first, int64_t count, int64_t group, std::byte* scales) {
  std::memset(scales, 0, kTileScaleBytes);
  if (rows.format == TileFormat::kMxfp4) {
    const int64_t per_row = rows.cols / kMxfp4GroupSize;
    for (int64_t c = 0; c < 2 && 2 * group + c < per_row; ++c) {
      const std::byte* from = rows.scale + first * per_row + 2 * group + c;
      for (int64_t lane = 0; lane < count; ++lane) scales[32 * c + lane] = from[lane * per_row];
    }
    return;
  }
  const int64_t per_row = rows.cols / rows.group_size;
  const std::byte* from = rows.scale + 2 * (first * per_row + group * kTileCols / rows.group_size);
  for (int64_t lane = 0; lane < count; ++lane) store(scales + 2 * lane, load<uint16_t>(from + 2 * lane * per_row));
}

void write_planes_of_row(const CodeRows& rows, int64_t row, int64_t group, int64_t lane, std::byte* tile) {
  const int64_t planes = plane_bytes(rows.format);
  for (int64_t c = 0; c < 2; ++c) {
    const int64_t first = group * kTileCols + c * kHalfCols;
    uint64_t codes[4];
    if (row >= 0 && first < rows.cols) {
      read_codes(rows, rows.codes + row * rows.codes_stride, first, codes);
    } else {
      std::fill_n(codes, 4, code_of_zero(rows.format));
    }
    write_planes(rows.format, codes, tile + (2 * c + lane / 16) * planes + lane % 16 * 4);
  }
}

// Groups whose planes a vector version wrote.
int64_t pack_whole_rows([[maybe_unused]] const CodeRows& rows, [[maybe_unused]] int64_t block,
                        [[maybe_unused]] std::byte* tiles) {
#if defined(__x86_64__)
  if (active_isa() < Isa::kAvx512 || reinterpret_cast<uintptr_t>(tiles) % 64 != 0) return 0;
  if (rows.format == TileFormat::kInt3 && rows.layout == PackedLayout::kPadded) return 0;
  const int64_t unit = packed_groups_unit(rows.format);
  const int64_t groups = rows.cols / kTileCols / unit * unit;
  pack_planes_avx512(rows.format, rows.codes + block * kTileRows * rows.codes_stride, rows.codes_stride, groups, tiles);
  return groups;
#else
  return 0;
#endif
}

}  // namespace

const char* to_string(TileFormat format) {
  switch (format) {
    case TileFormat::kInt3:
      return "int3";
    case TileFormat::kInt4:
      return "int4";
    case TileFormat::kMxfp4:
      return "mxfp4";
  }
  return "?";
}

int64_t tiles_bytes(TileFormat format, int64_t rows, int64_t cols) {
  return ceil_div(rows, kTileRows) * ceil_div(cols, kTileCols) * tile_bytes(format);
}

bool tileable(TileFormat format, int64_t cols, int64_t group_size) {
  if (cols <= 0 || group_size <= 0 || cols % group_size != 0) return false;
  return format == TileFormat::kMxfp4 ? group_size == kMxfp4GroupSize : group_size % kTileCols == 0;
}

void pack_tiles(const CodeRows& rows, int64_t num_rows, int64_t block, std::span<std::byte> out) noexcept {
  const int64_t groups = ceil_div(rows.cols, kTileCols);
  TREFOIL_CHECK(static_cast<int64_t>(out.size()) == groups * tile_bytes(rows.format));
  const int64_t first = block * kTileRows;
  const bool whole = first + kTileRows <= num_rows;
  const int64_t written = whole ? pack_whole_rows(rows, block, out.data()) : 0;
  for (int64_t group = 0; group < groups; ++group) {
    std::byte* tile = out.data() + group * tile_bytes(rows.format);
    for (int64_t lane = 0; group >= written && lane < kTileRows; ++lane) {
      const int64_t row = first + lane;
      write_planes_of_row(rows, row < num_rows ? row : -1, group, lane, tile);
    }
    write_scales(rows, first, std::min(kTileRows, num_rows - first), group, tile + 4 * plane_bytes(rows.format));
  }
}

TileElement tile_element(TileFormat format, const std::byte* tile, int row, int col) noexcept {
  const int c = col / kHalfCols, o = col % kHalfCols / 4, j = col % 4;
  const std::byte* planes = tile + (2 * c + row / 16) * plane_bytes(format) + row % 16 * 4 + j;
  const auto plane = [&](int p) { return static_cast<unsigned>(planes[64 * p]); };
  const std::byte* scales = tile + 4 * plane_bytes(format);
  if (format == TileFormat::kInt3) {
    unsigned code = 0;
    if (o < 6) {
      code = plane(o / 2) >> (3 * (o % 2)) & 7;
    } else {
      code = (plane(o - 6) >> 6 & 3) | (plane(2) >> o & 1) << 2;
    }
    return {static_cast<float>(code) - 4, bf16_to_f32(load<uint16_t>(scales + 2 * row))};
  }
  const unsigned code = plane(o / 2) >> (4 * (o % 2)) & 15;
  if (format == TileFormat::kInt4) {
    return {static_cast<float>(code) - 8, bf16_to_f32(load<uint16_t>(scales + 2 * row))};
  }
  const float magnitude = kE2m1[code & 7];
  return {(code & 8) != 0 ? -magnitude : magnitude, e8m0_to_f32(static_cast<uint8_t>(scales[32 * c + row]))};
}

}  // namespace trefoil
