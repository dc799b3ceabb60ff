#include <cmath>

#include "kernels/code_tiles.h"
#include "kernels/tile_matmul_impl.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

struct Row {
  TileFormat format = TileFormat::kInt3;
  const std::byte* tile = nullptr;
  int row = 0;

  float value(int col) const { return tile_element(format, tile, row, col).value; }
  float scale(int half) const { return tile_element(format, tile, row, 32 * half).scale; }
};

float exact_half(const Row& row, const uint32_t* x, int c) {
  float acc = 0;
  for (int o = 0; o < 8; ++o) {
    for (int parity = 0; parity < 2; ++parity) {
      const int k = 32 * c + 4 * o + parity;
      const uint32_t pair = x[2 * (8 * c + o) + parity];
      acc += row.value(k + 2) * bf16_to_f32(static_cast<uint16_t>(pair >> 16));
      acc += row.value(k) * bf16_to_f32(static_cast<uint16_t>(pair));
    }
  }
  return acc;
}

// sum of value * x over the half, `factor` times (2 makes E2M1 values integers), with x the bytes of `words`.
int32_t integer_half(const Row& row, const uint32_t* words, int c, int factor) {
  int32_t acc = 0;
  for (int k = 32 * c; k < 32 * (c + 1); ++k) {
    const auto x = static_cast<int8_t>(words[k / 4] >> (8 * (k % 4)));
    acc += static_cast<int32_t>(row.value(k) * static_cast<float>(factor)) * x;
  }
  return acc;
}

float add_group(const Row& row, const PackedView& x, int64_t at, float y) {
  const uint32_t* words = x.values + at * packed_words_per_group(x.mode);
  const bool halves = row.format == TileFormat::kMxfp4;  // have scales of their own
  if (x.mode == TileMode::kExact) {
    const float acc[2] = {exact_half(row, words, 0), exact_half(row, words, 1)};
    if (!halves) return std::fma(acc[0] + acc[1], row.scale(0), y);
    return std::fma(acc[1], row.scale(1), std::fma(acc[0], row.scale(0), y));
  }
  const int factor = halves ? 2 : 1;
  int32_t acc[2];
  for (int c = 0; c < 2; ++c) {
    acc[c] = integer_half(row, words, c, factor);
    if (x.mode == TileMode::kFast16) acc[c] = 256 * acc[c] + integer_half(row, words + 16, c, factor);
  }
  const float s = x.scale[at];
  if (!halves) return std::fma(static_cast<float>(acc[0] + acc[1]), row.scale(0) * s, y);
  const float half = s * 0.5f;
  return std::fma(static_cast<float>(acc[1]), row.scale(1) * half,
                  std::fma(static_cast<float>(acc[0]), row.scale(0) * half, y));
}

}  // namespace

void tile_matmul_scalar(const TileMatmulArgs& args) noexcept {
  for (int64_t r = 0; r < args.rows; ++r) {
    const std::byte* block = args.tiles + r / kTileRows * args.x.groups * tile_bytes(args.format);
    for (int64_t t = 0; t < args.x.tokens; ++t) {
      float y = 0;
      for (int64_t g = 0; g < args.x.groups; ++g) {
        const Row row{args.format, block + g * tile_bytes(args.format), static_cast<int>(r % kTileRows)};
        y = add_group(row, args.x, g * args.x.token_stride + t, y);
      }
      args.y[t * args.y_stride + r] = y;
    }
  }
}

}  // namespace trefoil
