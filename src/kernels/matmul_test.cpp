#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/random_test_data.h"

namespace trefoil {
namespace {

using testing::Random;

constexpr int64_t kLengths[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 64, 100, 257};

std::vector<Impl<MatmulFn>> runnable() {
  std::vector<Impl<MatmulFn>> impls;
  for (const auto& impl : matmul_impls()) {
    if (impl.isa <= detected_isa()) impls.push_back(impl);
  }
  return impls;
}

std::vector<float> product(MatmulFn* run, const std::vector<float>& x, const std::vector<float>& w, int64_t k) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / k;
  const int64_t rows = static_cast<int64_t>(w.size()) / k;
  std::vector<float> y(static_cast<size_t>(tokens * rows), -7.0f);
  run({.x = x.data(),
       .w = w.data(),
       .y = y.data(),
       .tokens = tokens,
       .rows = rows,
       .k = k,
       .x_stride = k,
       .y_stride = rows});
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Matmul, EveryImplementationGivesTheSameBits) {
  Random random(1);
  for (const int64_t k : kLengths) {
    for (int64_t tokens = 1; tokens <= 9; ++tokens) {
      for (const int64_t rows : {1, 3, 4, 5, 8, 11}) {
        const std::vector<float> x = random.vector(tokens * k);
        const std::vector<float> w = random.vector(rows * k);
        const std::vector<float> expected = product(matmul_scalar, x, w, k);
        for (const auto& impl : runnable()) {
          EXPECT_TRUE(same_bits(product(impl.run, x, w, k), expected))
              << to_string(impl.isa) << " tokens " << tokens << " rows " << rows << " k " << k;
        }
      }
    }
  }
}

TEST(Matmul, ExtremesSubnormalsAndSignedZerosAgreeToo) {
  Random random(2);
  const float kSpecial[] = {0.0f, -0.0f, 1e-42f, -1e-40f, 3e38f, -3e38f, 1e-20f, 1.0f};
  const int64_t k = 50;
  std::vector<float> x(static_cast<size_t>(5 * k)), w(static_cast<size_t>(6 * k));
  for (float& value : x) value = kSpecial[random.bits() % 8];
  for (float& value : w) value = kSpecial[random.bits() % 8] * 0.01f;
  const std::vector<float> expected = product(matmul_scalar, x, w, k);
  for (const auto& impl : runnable()) {
    const std::vector<float> y = product(impl.run, x, w, k);
    for (size_t i = 0; i < y.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(y[i])) << to_string(impl.isa);  // the sign and payload of a NaN are nobody's business
      } else {
        EXPECT_EQ(std::memcmp(&y[i], &expected[i], sizeof(float)), 0) << to_string(impl.isa) << " " << y[i];
      }
    }
  }
}

TEST(Matmul, ATokenDoesNotSeeItsBatch) {
  Random random(3);
  const int64_t k = 193, tokens = 13, rows = 10;
  const std::vector<float> x = random.vector(tokens * k);
  const std::vector<float> w = random.vector(rows * k);
  for (const auto& impl : runnable()) {
    const std::vector<float> all = product(impl.run, x, w, k);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t o = 0; o < rows; ++o) {
        const auto from = [k](const std::vector<float>& block, int64_t row) {
          return std::vector<float>(block.begin() + row * k, block.begin() + (row + 1) * k);
        };
        const std::vector<float> alone = product(impl.run, from(x, t), from(w, o), k);
        EXPECT_TRUE(same_bits(alone, {all[static_cast<size_t>(t * rows + o)]})) << to_string(impl.isa);
      }
    }
  }
}

TEST(Matmul, StaysWithinItsErrorBound) {
  Random random(4);
  for (const int64_t k : kLengths) {
    const std::vector<float> x = random.vector(k);
    const std::vector<float> w = random.vector(k);
    double exact = 0;
    double magnitude = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      exact += static_cast<double>(x[i]) * w[i];
      magnitude += std::fabs(static_cast<double>(x[i]) * w[i]);
    }
    const double bound = (static_cast<double>(k) / 16 + 5) * 0x1p-24 * magnitude;
    for (const auto& impl : runnable()) EXPECT_NEAR(product(impl.run, x, w, k)[0], exact, bound) << "k " << k;
  }
}

TEST(Matmul, StridedRowsAndOutputsLeaveTheGapsAlone) {
  Random random(5);
  const int64_t k = 20, x_stride = 27, tokens = 5, rows = 6, y_stride = 9;
  const std::vector<float> x = random.vector(tokens * x_stride);
  const std::vector<float> w = random.vector(rows * k);
  for (const auto& impl : runnable()) {
    std::vector<float> y(static_cast<size_t>(tokens * y_stride), 5.0f);
    impl.run({.x = x.data(),
              .w = w.data(),
              .y = y.data(),
              .tokens = tokens,
              .rows = rows,
              .k = k,
              .x_stride = x_stride,
              .y_stride = y_stride});
    for (int64_t t = 0; t < tokens; ++t) {
      const std::vector<float> token(x.begin() + t * x_stride, x.begin() + t * x_stride + k);
      const std::vector<float> expected = product(matmul_scalar, token, w, k);
      const auto row = y.begin() + t * y_stride;
      EXPECT_TRUE(same_bits({row, row + rows}, expected)) << to_string(impl.isa);
      EXPECT_TRUE(std::all_of(row + rows, row + y_stride, [](float value) { return value == 5.0f; }));
    }
  }
}

TEST(Matmul, EmptyProductsAreZeroAndNothingIsWrittenForNoTokens) {
  for (const auto& impl : runnable()) {
    float y = 3;
    impl.run({.x = &y, .w = &y, .y = &y, .tokens = 0, .rows = 1, .k = 1, .x_stride = 1, .y_stride = 1});
    EXPECT_EQ(y, 3);
    const float unused = 0;
    impl.run({.x = &unused, .w = &unused, .y = &y, .tokens = 1, .rows = 1, .k = 0, .x_stride = 0, .y_stride = 1});
    EXPECT_EQ(y, 0);
  }
}

TEST(Matmul, NanAndInfinityComeThrough) {
  std::vector<float> x(40, 1.0f), w(40, 1.0f);
  for (const auto& impl : runnable()) {
    x[37] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(product(impl.run, x, w, 40)[0]));
    x[37] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(product(impl.run, x, w, 40)[0]));
  }
}

}  // namespace
}  // namespace trefoil
