// Activations of a block of tokens in the form the tile kernels read, made once and used by every matrix that takes the
// same input (w1 and w3 of all experts of a token). docs/kernels.md, "Modes".
//
//   kExact : bf16, x as it is (values that are not bf16 are rounded to it)
//   kFast16: blocks of 64 columns in 16-bit fixed point, x = s (256 hi + lo), s = max|x| / 32512
//   kFast8 : blocks of 64 columns in 8 bits, x = s q, s = max|x| / 127
// Quotients are rounded to the nearest integer, ties to even; a block of zeros has s = 0. Every token is packed by
// itself: its form does not depend on the others. Non-finite input gives non-finite or unspecified output, never a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/packed_tokens_impl.h"

namespace trefoil {

const char* to_string(TileMode mode);

class PackedTokens {
 public:
  // Makes room; contents are unspecified. Then every group is packed once, different ones by different threads if need
  // be: columns [64 group, 64 group + 64) of all tokens, of which `block` is the first value; tokens lie `stride` floats
  // apart. Columns past `cols` count as zeros.
  void reset(TileMode mode, int64_t tokens, int64_t cols);
  void pack_group(int64_t group, const float* block, int64_t stride);
  // Both at once. x: [tokens, cols], rows following each other.
  void pack(TileMode mode, std::span<const float> x, int64_t tokens, int64_t cols);
  // The tokens `which` of another block, in that order.
  void gather(const PackedTokens& from, std::span<const int64_t> which);
  // Tokens [begin, begin + count) of the block.
  PackedView view(int64_t begin, int64_t count) const;
  PackedView view() const { return view(0, tokens_); }
  TileMode mode() const { return mode_; }
  int64_t tokens() const { return tokens_; }
  int64_t cols() const { return cols_; }
  int64_t groups() const { return groups_; }

 private:
  TileMode mode_ = TileMode::kExact;
  int64_t tokens_ = 0, cols_ = 0, groups_ = 0;
  std::vector<uint32_t> values_;
  std::vector<float> scale_;
  std::vector<int32_t> sums_;
};

// Bytes a PackedTokens of this size holds.
int64_t packed_tokens_bytes(TileMode mode, int64_t tokens, int64_t cols);

}  // namespace trefoil
