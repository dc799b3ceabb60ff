// The layout of packed_tokens.h, for the kernels that read it.
#pragma once

#include <cstdint>

namespace trefoil {

enum class TileMode { kExact, kFast16, kFast8 };

// Words of one token and one group of 64 columns. Word 8c + o of a half-word form holds what multiplies field o of column
// half c (kernels/code_tiles.h):
//   kExact : [2 (8c + o) + parity]: low half x[32c + 4o + parity], high half x[32c + 4o + parity + 2], both bf16
//   kFast16: [8c + o] four bytes hi, [16 + 8c + o] four bytes lo, of x[32c + 4o .. + 3]
//   kFast8 : [8c + o] four bytes
constexpr int64_t packed_words_per_group(TileMode mode) {
  return mode == TileMode::kFast8 ? 16 : 32;
}
// Negated sums of the bytes of a group: of all, of column half 0, of half 1, for the hi (or only) bytes and then the lo
// ones. Codes are stored with an offset; sums of products start with the offset times these.
constexpr int64_t kPackedSums = 6;
constexpr int64_t kSumsOfLow = 3;

struct PackedView {
  TileMode mode = TileMode::kExact;
  int64_t tokens = 0;
  int64_t groups = 0;
  int64_t token_stride = 0;          // tokens of the whole block: group g of token t is at row g * token_stride + t
  const uint32_t* values = nullptr;  // [groups][token_stride][packed_words_per_group]
  const float* scale = nullptr;      // [groups][token_stride], s; null for kExact
  const int32_t* sums = nullptr;     // [groups][token_stride][kPackedSums]; null for kExact
};

}  // namespace trefoil
