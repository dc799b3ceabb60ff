#include "kernels/row_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/random_test_data.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

using testing::Random;

struct Matrix {
  int64_t rows, k;
  std::vector<uint16_t> bf16, scale;
  std::vector<int8_t> q;
  RowFormat format;

  Matrix(Random& random, RowFormat row_format, int64_t num_rows, int64_t cols)
      : rows(num_rows), k(cols), format(row_format) {
    const std::vector<float> w = random.vector(rows * k);
    for (const float value : w) bf16.push_back(f32_to_bf16(value));
    q.resize(w.size());
    scale.resize(static_cast<size_t>(rows * ((k + kInt8Group - 1) / kInt8Group)));
    quantize_int8_rows(w, rows, k, q, scale);
  }
  RowMatrix view() const {
    if (format == RowFormat::kBf16) return {.format = format, .values = bf16.data(), .k = k};
    return {.format = format, .values = q.data(), .scale = scale.data(), .k = k};
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(RowMatmul, GivesTheBitsOfMatmulOnDecodedRows) {
  Random random(1);
  for (const RowFormat format : {RowFormat::kBf16, RowFormat::kInt8}) {
    for (const int64_t k : {1, 7, 16, 17, 63, 64, 65, 128, 200, 257}) {
      for (const int64_t rows : {1, 2, 3, 9}) {
        const Matrix matrix(random, format, rows, k);
        std::vector<float> decoded(static_cast<size_t>(rows * k));
        row_decode_scalar(matrix.view(), rows, decoded.data());
        for (const auto& impl : row_decode_impls()) {
          if (impl.isa > detected_isa()) continue;
          std::vector<float> found(decoded.size(), -7.0f);
          impl.run(matrix.view(), rows, found.data());
          EXPECT_TRUE(same_bits(found, decoded)) << to_string(impl.isa) << " k " << k;
        }
        for (int64_t tokens = 1; tokens <= kRowTokens; ++tokens) {
          const std::vector<float> x = random.vector(tokens * k);
          std::vector<float> expected(static_cast<size_t>(tokens * rows));
          matmul_scalar({x.data(), decoded.data(), expected.data(), tokens, rows, k, k, rows});
          for (const auto& impl : row_matmul_impls()) {
            if (impl.isa > detected_isa()) continue;
            std::vector<float> found(expected.size(), -7.0f);
            impl.run({matrix.view(), x.data(), found.data(), tokens, rows, k, rows});
            EXPECT_TRUE(same_bits(found, expected)) << to_string(impl.isa) << " k " << k << " tokens " << tokens;
          }
        }
      }
    }
  }
}

TEST(RowMatmul, AnyNumberOfTokensAndRowsFromAnywhere) {
  Random random(2);
  const Matrix matrix(random, RowFormat::kInt8, 6, 100);
  const std::vector<float> x = random.vector(11 * 100);
  std::vector<float> all(11 * 6), part(11 * 2);
  row_matmul({matrix.view(), x.data(), all.data(), 11, 6, 100, 6});
  row_matmul({matrix.view().from(3), x.data(), part.data(), 11, 2, 100, 2});
  for (size_t t = 0; t < 11; ++t) {
    for (size_t o = 0; o < 2; ++o) EXPECT_EQ(part[2 * t + o], all[6 * t + 3 + o]);
  }
}

TEST(Int8Rows, ErrorIsAtMostHalfAStepAndNothingIsClipped) {
  Random random(3);
  const int64_t k = 130;
  std::vector<float> w = random.vector(3 * k, -0.3f, 0.3f);
  for (int64_t i = 0; i < 64; ++i) w[static_cast<size_t>(i)] = 0;  // a group of zeros
  w[100] = 55;
  std::vector<int8_t> q(w.size());
  std::vector<uint16_t> scale(3 * 3);
  quantize_int8_rows(w, 3, k, q, scale);
  EXPECT_EQ(scale[0], 0);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const size_t at = static_cast<size_t>(row * k + i);
      const float step = bf16_to_f32(scale[static_cast<size_t>(row * 3 + i / 64)]);
      EXPECT_LE(std::fabs(static_cast<float>(q[at]) * step - w[at]), 0.5001f * step) << row << " " << i;
    }
  }
}

}  // namespace
}  // namespace trefoil
