#include "kernels/packed_tokens.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/check.h"
#include "base/vectorize.h"
#include "kernels/code_tiles_impl.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

uint32_t byte_at(int32_t value, int j) {
  return (static_cast<uint32_t>(value) & 0xFF) << (8 * j);
}

void pack_exact(const float* x, uint32_t* words) {
  for (int i = 0; i < 32; ++i) {
    const int col = i / 2 * 4 + i % 2;
    words[i] = f32_to_bf16(x[col]) | static_cast<uint32_t>(f32_to_bf16(x[col + 2])) << 16;
  }
}

float largest(const float* x) {
  float most = 0;
  for (int64_t k = 0; k < kTileCols; ++k) most = std::max(most, std::fabs(x[k]));
  return most;
}

// q[k] = x[k] / s to the nearest integer, s = max|x| / steps. Returns s. A block that is not finite is left to its scale.
float to_fixed_point(const float* x, float steps, int32_t* q) {
  const float most = largest(x);
  const float scale = most / steps;
  const float inverse = scale > 0 && std::isfinite(scale) ? 1 / scale : 0;
  // 1 / s overflows for scales that are nearly subnormal: such a block is nothing.
  const float factor = std::isfinite(inverse) ? inverse : 0;
  for (int64_t k = 0; k < kTileCols; ++k) {
    const float steps_of_x = x[k] * factor;
    q[k] = static_cast<int32_t>(std::nearbyint(std::clamp(std::isnan(steps_of_x) ? 0 : steps_of_x, -steps, steps)));
  }
  return scale;
}

void add_to_sums(int32_t* sums, int word, int32_t value) {
  sums[0] -= value;
  sums[1 + word / 8] -= value;
}

void pack_fast8(const int32_t* q, uint32_t* words, int32_t* sums) {
  for (int i = 0; i < 16; ++i) {
    words[i] = 0;
    for (int j = 0; j < 4; ++j) {
      words[i] |= byte_at(q[4 * i + j], j);
      add_to_sums(sums, i, q[4 * i + j]);
    }
  }
}

void pack_fast16(const int32_t* q, uint32_t* words, int32_t* sums) {
  for (int i = 0; i < 16; ++i) {
    words[i] = words[16 + i] = 0;
    for (int j = 0; j < 4; ++j) {
      const int32_t hi = (q[4 * i + j] + 128) >> 8;
      const int32_t lo = q[4 * i + j] - 256 * hi;
      words[i] |= byte_at(hi, j);
      words[16 + i] |= byte_at(lo, j);
      add_to_sums(sums, i, hi);
      add_to_sums(sums + kSumsOfLow, i, lo);
    }
  }
}

}  // namespace

const char* to_string(TileMode mode) {
  switch (mode) {
    case TileMode::kExact:
      return "exact";
    case TileMode::kFast16:
      return "fast16";
    case TileMode::kFast8:
      return "fast8";
  }
  return "?";
}

void PackedTokens::reset(TileMode mode, int64_t tokens, int64_t cols) {
  mode_ = mode;
  tokens_ = tokens;
  cols_ = cols;
  groups_ = ceil_div(cols, kTileCols);
  const size_t rows = static_cast<size_t>(groups_ * tokens);
  const bool fixed = mode != TileMode::kExact;
  values_.resize(rows * static_cast<size_t>(packed_words_per_group(mode)));
  scale_.resize(fixed ? rows : 0);
  sums_.resize(fixed ? rows * kPackedSums : 0);
}

TREFOIL_VECTORIZE void PackedTokens::pack_group(int64_t group, const float* block, int64_t stride) {
  TREFOIL_CHECK(group >= 0 && group < groups_);
  const int64_t count = std::min(kTileCols, cols_ - group * kTileCols);
  for (int64_t t = 0; t < tokens_; ++t) {
    const float* x = block + t * stride;
    float padded[kTileCols];
    if (count < kTileCols) {
      std::fill(std::copy_n(x, count, padded), padded + kTileCols, 0.0f);
      x = padded;
    }
    const int64_t row = group * tokens_ + t;
    uint32_t* out = values_.data() + row * packed_words_per_group(mode_);
    if (mode_ == TileMode::kExact) {
      pack_exact(x, out);
      continue;
    }
    int32_t q[kTileCols];
    scale_[static_cast<size_t>(row)] = to_fixed_point(x, mode_ == TileMode::kFast8 ? 127.0f : 32512.0f, q);
    int32_t* sums = sums_.data() + row * kPackedSums;
    std::fill_n(sums, kPackedSums, 0);
    if (mode_ == TileMode::kFast8) {
      pack_fast8(q, out, sums);
    } else {
      pack_fast16(q, out, sums);
    }
  }
}

void PackedTokens::pack(TileMode mode, std::span<const float> x, int64_t tokens, int64_t cols) {
  TREFOIL_CHECK(static_cast<int64_t>(x.size()) == tokens * cols);
  reset(mode, tokens, cols);
  for (int64_t group = 0; group < groups_; ++group) pack_group(group, x.data() + group * kTileCols, cols);
}

void PackedTokens::gather(const PackedTokens& from, std::span<const int64_t> which) {
  reset(from.mode_, static_cast<int64_t>(which.size()), from.cols_);
  const int64_t words = packed_words_per_group(mode_);
  for (int64_t group = 0; group < groups_; ++group) {
    for (int64_t t = 0; t < tokens_; ++t) {
      const int64_t source = group * from.tokens_ + which[static_cast<size_t>(t)], row = group * tokens_ + t;
      std::copy_n(from.values_.data() + source * words, words, values_.data() + row * words);
      if (mode_ == TileMode::kExact) continue;
      scale_[static_cast<size_t>(row)] = from.scale_[static_cast<size_t>(source)];
      std::copy_n(from.sums_.data() + source * kPackedSums, kPackedSums, sums_.data() + row * kPackedSums);
    }
  }
}

PackedView PackedTokens::view(int64_t begin, int64_t count) const {
  TREFOIL_CHECK(begin >= 0 && count >= 0 && begin + count <= tokens_);
  const bool fixed = mode_ != TileMode::kExact;
  return {.mode = mode_,
          .tokens = count,
          .groups = groups_,
          .token_stride = tokens_,
          .values = values_.data() + begin * packed_words_per_group(mode_),
          .scale = fixed ? scale_.data() + begin : nullptr,
          .sums = fixed ? sums_.data() + begin * kPackedSums : nullptr};
}

int64_t packed_tokens_bytes(TileMode mode, int64_t tokens, int64_t cols) {
  const int64_t rows = ceil_div(cols, kTileCols) * tokens;
  return rows * (4 * packed_words_per_group(mode) + (mode == TileMode::kExact ? 0 : 4 + 4 * kPackedSums));
}

}  // namespace trefoil
