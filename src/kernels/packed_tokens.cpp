#include "kernels/packed_tokens.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/check.h"
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

void pack_fast8(const int32_t* q, uint32_t* words, int32_t* sums) {
  for (int i = 0; i < 16; ++i) {
    words[i] = 0;
    for (int j = 0; j < 4; ++j) {
      words[i] |= byte_at(q[4 * i + j], j);
      sums[i / 8] += q[4 * i + j];
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
      sums[i / 8] += hi;
      sums[2 + i / 8] += lo;
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

void PackedTokens::pack(TileMode mode, std::span<const float> x, int64_t tokens, int64_t cols) {
  TREFOIL_CHECK(static_cast<int64_t>(x.size()) == tokens * cols);
  mode_ = mode;
  tokens_ = tokens;
  cols_ = cols;
  groups_ = ceil_div(cols, kTileCols);
  const int64_t words = packed_words_per_group(mode);
  values_.resize(static_cast<size_t>(groups_ * tokens * words));
  const bool fixed = mode != TileMode::kExact;
  scale_.resize(fixed ? static_cast<size_t>(groups_ * tokens) : 0);
  sums_.assign(fixed ? static_cast<size_t>(groups_ * tokens * kPackedSums) : 0, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t g = 0; g < groups_; ++g) {
      const int64_t first = g * kTileCols;
      const float* block = x.data() + t * cols + first;
      float padded[kTileCols];
      if (first + kTileCols > cols) {
        std::fill(std::copy(block, x.data() + (t + 1) * cols, padded), padded + kTileCols, 0.0f);
        block = padded;
      }
      const int64_t row = g * tokens + t;
      uint32_t* out = values_.data() + row * words;
      if (!fixed) {
        pack_exact(block, out);
        continue;
      }
      int32_t q[kTileCols];
      scale_[static_cast<size_t>(row)] = to_fixed_point(block, mode == TileMode::kFast8 ? 127.0f : 32512.0f, q);
      int32_t* sums = sums_.data() + row * kPackedSums;
      if (mode == TileMode::kFast8) {
        pack_fast8(q, out, sums);
      } else {
        pack_fast16(q, out, sums);
      }
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
