#include "kernels/tile_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/code_tiles.h"
#include "kernels/packed_tokens.h"
#include "kernels/random_test_data.h"
#include "tensor/bf16.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

using testing::Random;

constexpr TileFormat kFormats[] = {TileFormat::kInt3, TileFormat::kInt4, TileFormat::kMxfp4};
constexpr TileMode kModes[] = {TileMode::kExact, TileMode::kFast16, TileMode::kFast8};

// A matrix of random codes and scales as it lies on disk, in tiles, and as the numbers it means.
struct Matrix {
  TileFormat format;
  int64_t rows, cols;
  std::vector<std::byte> codes, scale, tiles;
  std::vector<float> value;  // [rows, cols], exact products code * scale

  Matrix(Random& random, TileFormat tile_format, int64_t num_rows, int64_t num_cols)
      : format(tile_format), rows(num_rows), cols(num_cols) {
    const int bits = format == TileFormat::kInt3 ? 3 : 4;
    const int64_t stride = cols * bits / 8;
    const int64_t group = format == TileFormat::kMxfp4 ? 32 : 64;
    codes.resize(static_cast<size_t>(rows * stride));
    for (std::byte& byte : codes) byte = static_cast<std::byte>(random.bits());
    const int64_t scales = rows * cols / group;
    scale.resize(static_cast<size_t>(format == TileFormat::kMxfp4 ? scales : 2 * scales));
    value.resize(static_cast<size_t>(rows * cols));
    std::vector<float> scale_value(static_cast<size_t>(scales));
    for (int64_t i = 0; i < scales; ++i) {
      if (format == TileFormat::kMxfp4) {
        scale[static_cast<size_t>(i)] = static_cast<std::byte>(118 + random.bits() % 6);
        scale_value[static_cast<size_t>(i)] = e8m0_to_f32(static_cast<uint8_t>(scale[static_cast<size_t>(i)]));
      } else {
        const uint16_t bf16 = f32_to_bf16(random.uniform(-0.02f, 0.02f));
        std::memcpy(&scale[static_cast<size_t>(2 * i)], &bf16, 2);
        scale_value[static_cast<size_t>(i)] = bf16_to_f32(bf16);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < cols; ++k) {
        unsigned code = 0;
        for (int b = 0; b < bits; ++b) {
          const int64_t at = k * bits + b;
          const auto byte = static_cast<unsigned>(codes[static_cast<size_t>(r * stride + at / 8)]);
          code |= (byte >> (at % 8) & 1) << b;
        }
        float q = static_cast<float>(code) - (format == TileFormat::kInt3 ? 4 : 8);
        if (format == TileFormat::kMxfp4) q = code < 8 ? kE2m1[code] : -kE2m1[code - 8];
        value[static_cast<size_t>(r * cols + k)] = q * scale_value[static_cast<size_t>((r * cols + k) / group)];
      }
    }
    pack({.codes = codes.data(),
          .scale = scale.data(),
          .codes_stride = stride,
          .cols = cols,
          .group_size = group,
          .format = format,
          .layout = PackedLayout::kDense});
  }

  void pack(const CodeRows& source) {
    tiles.resize(static_cast<size_t>(tiles_bytes(format, rows, cols)) + 64);
    const int64_t block_bytes = tiles_bytes(format, kTileRows, cols);
    for (int64_t block = 0; block * kTileRows < rows; ++block) {
      pack_tiles(source, rows, block, {aligned() + block * block_bytes, static_cast<size_t>(block_bytes)});
    }
  }
  std::byte* aligned() { return tiles.data() + (64 - reinterpret_cast<uintptr_t>(tiles.data()) % 64) % 64; }
};

std::vector<float> bf16_vector(Random& random, int64_t size) {
  std::vector<float> values = random.vector(size, -2, 2);
  for (float& value : values) value = round_to_bf16(value);
  return values;
}

std::vector<float> product(TileMatmulFn* run, Matrix& matrix, const PackedView& x) {
  const int64_t stride = matrix.rows + 3;
  std::vector<float> y(static_cast<size_t>(x.tokens * stride), -7.0f);
  run({.format = matrix.format,
       .tiles = matrix.aligned(),
       .row_blocks = (matrix.rows + kTileRows - 1) / kTileRows,
       .rows = matrix.rows,
       .x = x,
       .y = y.data(),
       .y_stride = stride});
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(CodeTiles, EveryElementIsTheOneOnDisk) {
  Random random(11);
  for (const TileFormat format : kFormats) {
    Matrix matrix(random, format, 45, 704);  // a whole block of rows and a part of one, columns with a tail
    const int64_t groups = matrix.cols / kTileCols;
    for (int64_t r = 0; r < matrix.rows; ++r) {
      for (int64_t k = 0; k < matrix.cols; ++k) {
        const std::byte* tile = matrix.aligned() + (r / kTileRows * groups + k / kTileCols) * tile_bytes(format);
        const TileElement element =
            tile_element(format, tile, static_cast<int>(r % kTileRows), static_cast<int>(k % kTileCols));
        ASSERT_EQ(element.value * element.scale, matrix.value[static_cast<size_t>(r * matrix.cols + k)])
            << to_string(format) << " row " << r << " column " << k;
      }
    }
  }
}

TEST(CodeTiles, PaddedRowsGiveTheTilesOfDenseOnes) {
  Random random(12);
  Matrix matrix(random, TileFormat::kInt3, 40, 128);
  const std::vector<std::byte> expected(matrix.aligned(), matrix.aligned() + tiles_bytes(matrix.format, 40, 128));
  std::vector<uint32_t> padded;
  const int64_t words = packed_words(3, 128, PackedLayout::kPadded);
  std::vector<int8_t> q(128);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    std::vector<uint32_t> dense(12);
    std::memcpy(dense.data(), matrix.codes.data() + r * 48, 48);
    unpack_row(3, PackedLayout::kDense, dense, q);
    padded.resize(padded.size() + static_cast<size_t>(words));
    pack_row(3, PackedLayout::kPadded, q, std::span(padded).last(static_cast<size_t>(words)));
  }
  matrix.pack({.codes = reinterpret_cast<const std::byte*>(padded.data()),
               .scale = matrix.scale.data(),
               .codes_stride = 4 * words,
               .cols = 128,
               .group_size = 64,
               .format = TileFormat::kInt3,
               .layout = PackedLayout::kPadded});
  EXPECT_EQ(std::memcmp(matrix.aligned(), expected.data(), expected.size()), 0);
}

TEST(TileMatmul, EveryImplementationGivesTheSameBits) {
  Random random(1);
  for (const TileFormat format : kFormats) {
    for (const int64_t rows : {32, 20, 45, 96}) {
      for (const int64_t cols : {64, 192, 320, format == TileFormat::kMxfp4 ? 96 : 128}) {
        Matrix matrix(random, format, rows, cols);
        for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 12, 13, 131}) {
          const std::vector<float> x = bf16_vector(random, tokens * cols);
          for (const TileMode mode : kModes) {
            PackedTokens packed;
            packed.pack(mode, x, tokens, cols);
            const std::vector<float> expected = product(tile_matmul_scalar, matrix, packed.view());
            for (const auto& impl : tile_matmul_impls(mode)) {
              if (impl.isa > detected_isa()) continue;
              ASSERT_TRUE(same_bits(product(impl.run, matrix, packed.view()), expected))
                  << to_string(format) << " " << to_string(mode) << " " << to_string(impl.isa) << " rows " << rows
                  << " columns " << cols << " tokens " << tokens;
            }
          }
        }
      }
    }
  }
}

TEST(TileMatmul, ATokensResultDoesNotDependOnItsBatchMates) {
  Random random(2);
  for (const TileFormat format : kFormats) {
    Matrix matrix(random, format, 64, 256);
    const int64_t tokens = 29;
    const std::vector<float> x = bf16_vector(random, tokens * 256);
    for (const TileMode mode : kModes) {
      PackedTokens all, one;
      all.pack(mode, x, tokens, 256);
      const std::vector<float> together = product(tile_matmul, matrix, all.view());
      const std::vector<float> part = product(tile_matmul, matrix, all.view(3, 7));
      for (int64_t t = 0; t < tokens; ++t) {
        one.pack(mode, std::span(x).subspan(static_cast<size_t>(256 * t), 256), 1, 256);
        const std::vector<float> alone = product(tile_matmul, matrix, one.view());
        EXPECT_EQ(std::memcmp(alone.data(), together.data() + t * 67, 64 * sizeof(float)), 0) << t;
        if (t >= 3 && t < 10) {
          EXPECT_EQ(std::memcmp(alone.data(), part.data() + (t - 3) * 67, 64 * sizeof(float)), 0) << t;
        }
      }
    }
  }
}

// Largest and rms error against f64, relative to the rms of the result.
double relative_rms(Matrix& matrix, TileMode mode, const std::vector<float>& x, int64_t tokens) {
  PackedTokens packed;
  packed.pack(mode, x, tokens, matrix.cols);
  const std::vector<float> y = product(tile_matmul, matrix, packed.view());
  double error = 0, size = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < matrix.rows; ++r) {
      double exact = 0;
      for (int64_t k = 0; k < matrix.cols; ++k) {
        exact += static_cast<double>(matrix.value[static_cast<size_t>(r * matrix.cols + k)]) *
                 static_cast<double>(x[static_cast<size_t>(t * matrix.cols + k)]);
      }
      const double found = y[static_cast<size_t>(t * (matrix.rows + 3) + r)];
      error += (found - exact) * (found - exact);
      size += exact * exact;
    }
  }
  return std::sqrt(error / size);
}

TEST(TileMatmul, ErrorsAgainstF64AreThoseOfTheModes) {
  Random random(3);
  constexpr double kBound[] = {5e-7, 5e-5, 1e-2};  // exact, fast16, fast8
  for (const TileFormat format : kFormats) {
    Matrix matrix(random, format, 32, 3584);
    const std::vector<float> x = bf16_vector(random, 9 * 3584);
    for (const TileMode mode : kModes) {
      const double error = relative_rms(matrix, mode, x, 9);
      EXPECT_LT(error, kBound[static_cast<int>(mode)]) << to_string(format) << " " << to_string(mode);
      EXPECT_GT(error, kBound[static_cast<int>(mode)] / 1000);
    }
  }
}

TEST(TileMatmul, ZerosExtremesAndNonFiniteInputs) {
  Random random(4);
  Matrix matrix(random, TileFormat::kInt3, 32, 128);
  for (const TileMode mode : kModes) {
    PackedTokens packed;
    packed.pack(mode, std::vector<float>(128), 1, 128);
    for (float value : product(tile_matmul, matrix, packed.view())) EXPECT_TRUE(value == 0 || value == -7.0f);
    // Blocks of 64 have scales of their own: a huge one does not wipe out a small one.
    std::vector<float> x = bf16_vector(random, 128);
    for (size_t k = 0; k < 64; ++k) x[k] = 0x1p100f;
    packed.pack(mode, x, 1, 128);
    for (float value : product(tile_matmul, matrix, packed.view())) EXPECT_TRUE(std::isfinite(value));
    x[5] = std::numeric_limits<float>::quiet_NaN();
    x[100] = std::numeric_limits<float>::infinity();
    packed.pack(mode, x, 1, 128);
    bool any_bad = false;
    for (float value : product(tile_matmul, matrix, packed.view())) any_bad |= !std::isfinite(value);
    EXPECT_TRUE(any_bad) << to_string(mode);
  }
}

TEST(PackedTokens, ExactKeepsBf16AsItIs) {
  Random random(5);
  const std::vector<float> x = bf16_vector(random, 2 * 64);
  PackedTokens packed;
  packed.pack(TileMode::kExact, x, 2, 64);
  const PackedView view = packed.view();
  for (int t = 0; t < 2; ++t) {
    for (int k = 0; k < 64; ++k) {
      const uint32_t word = view.values[32 * t + k / 4 * 2 + k % 2];
      const auto half = static_cast<uint16_t>(k % 4 < 2 ? word : word >> 16);
      EXPECT_EQ(bf16_to_f32(half), x[static_cast<size_t>(64 * t + k)]) << k;
    }
  }
}

TEST(PackedTokens, FixedPointIsWithinHalfAStep) {
  Random random(6);
  const std::vector<float> x = random.vector(64, -3, 3);
  PackedTokens packed;
  packed.pack(TileMode::kFast16, x, 1, 64);
  const PackedView view = packed.view();
  for (int k = 0; k < 64; ++k) {
    const int shift = 8 * (k % 4);
    const int hi = static_cast<int8_t>(view.values[k / 4] >> shift);
    const int lo = static_cast<int8_t>(view.values[16 + k / 4] >> shift);
    EXPECT_NEAR(view.scale[0] * static_cast<float>(256 * hi + lo), x[static_cast<size_t>(k)], 0.5001f * view.scale[0]);
  }
}

}  // namespace
}  // namespace trefoil
