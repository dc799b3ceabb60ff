// Weights of few bits in tiles: one layout that every instruction set and every mode reads. docs/kernels.md, "Tiles".
//
// A tile is 32 rows by 64 columns. The tiles of a block of 32 rows follow one another along the columns, the blocks of
// rows follow one another: a thread that computes rows reads one sequential stream, scales included.
//
//   tile  = [column half c 0..1][row half h 0..1][plane p][row r 0..15][byte j 0..3] and then 64 bytes of scales
//   field = the code of row 16h + r, column 32c + 4o + j, for o in 0..7: eight fields share byte (r, j) of the planes
//
//   kInt3  (832 bytes):  P0 = f0 | f1 << 3 | (f6 & 3) << 6      P1 = f2 | f3 << 3 | (f7 & 3) << 6
//                        P2 = f4 | f5 << 3 | (f6 >> 2) << 6 | (f7 >> 2) << 7
//                        code u = q + 4; scales bf16 [32], one a row
//   kInt4  (1088 bytes): Pp = f(2p) | f(2p + 1) << 4, p in 0..3; u = q + 8; scales bf16 [32]
//   kMxfp4 (1088 bytes): planes as kInt4, codes E2M1; scales E8M0 [c][32], one for 32 columns of a row
//
// Rows and columns that a matrix lacks to fill its last tiles have codes of value 0 and scales 0.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "kernels/code_tiles_impl.h"
#include "tensor/packed_int.h"

namespace trefoil {

const char* to_string(TileFormat format);

// Bytes of a matrix in tiles.
int64_t tiles_bytes(TileFormat format, int64_t rows, int64_t cols);

// How the rows of a matrix lie on disk, for pack_tiles().
struct CodeRows {
  const std::byte* codes = nullptr;  // rows `codes_stride` bytes apart; any alignment
  const std::byte* scale = nullptr;  // bf16 [cols / group] or, for kMxfp4, E8M0 [cols / 32], rows following each other
  int64_t codes_stride = 0;
  int64_t cols = 0;        // a multiple of group_size
  int64_t group_size = 0;  // a multiple of 64; kMxfp4: 32
  TileFormat format = TileFormat::kInt3;
  PackedLayout layout = PackedLayout::kDense;  // of kInt3 rows
};

// True when pack_tiles() takes such rows: other group sizes stay with the decoding path (model/linear.h).
bool tileable(TileFormat format, int64_t cols, int64_t group_size);

// Packs rows [32 block, min(32 block + 32, rows)) of `rows` into one block of tiles, `out` = tile_bytes * ceil(cols / 64).
void pack_tiles(const CodeRows& rows, int64_t num_rows, int64_t block, std::span<std::byte> out) noexcept;

// The value of an element, decoded slowly: q (kInt3, kInt4) or the E2M1 value, and its scale, both exact. For tests and
// the scalar kernel.
struct TileElement {
  float value = 0;
  float scale = 0;
};
TileElement tile_element(TileFormat format, const std::byte* tile, int row, int col) noexcept;

}  // namespace trefoil
