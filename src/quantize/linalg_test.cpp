#include "quantize/linalg.h"
#include "base/error.h"
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace trefoil {
namespace {

std::vector<float> gaussian(int64_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(rng);
  return values;
}

TEST(Linalg, SelfTestPassesHere) {
  const auto wrong = linalg_self_test();
  EXPECT_FALSE(wrong.has_value()) << *wrong << " (" << linalg_description() << ")";
}

TEST(Linalg, MoreThreadsThanTheAddressSpaceHoldsAreRefused) {
  linalg_check_room(4);
  try {
    linalg_check_room(1 << 30);  // 2^57 bytes
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOverBudget);
  }
}

// Every op(A), op(B) at odd sizes, against f64 loops; bound: (k + 2) rounding errors of the sum of magnitudes.
TEST(Linalg, GemmAgreesWithPlainLoopsAtOddSizes) {
  for (int64_t m = 1; m <= 300; m += m < 20 ? 1 : 23) {
    const int64_t n = (m * 5 + 1) % 129 + 1, k = (m * 7 + 3) % 311 + 1;
    const std::vector<float> a = gaussian(m * k, 1), b = gaussian(k * n, 2);
    for (const Transpose trans_a : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose trans_b : {Transpose::kNo, Transpose::kYes}) {
        std::vector<float> c(static_cast<size_t>(m * n), 0.5f);
        const int64_t lda = trans_a == Transpose::kYes ? m : k, ldb = trans_b == Transpose::kYes ? k : n;
        gemm(trans_a, trans_b, m, n, k, -1.5f, a.data(), lda, b.data(), ldb, 1.0f, c.data(), n);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0.5, magnitude = 0.5;
            for (int64_t t = 0; t < k; ++t) {
              const double av =
                  trans_a == Transpose::kYes ? a[static_cast<size_t>(t * m + i)] : a[static_cast<size_t>(i * k + t)];
              const double bv =
                  trans_b == Transpose::kYes ? b[static_cast<size_t>(j * k + t)] : b[static_cast<size_t>(t * n + j)];
              sum -= 1.5 * av * bv;
              magnitude += std::abs(1.5 * av * bv);
            }
            const double bound = static_cast<double>(k + 2) * std::numeric_limits<float>::epsilon() * magnitude;
            ASSERT_NEAR(c[static_cast<size_t>(i * n + j)], sum, bound) << "m " << m << " n " << n << " k " << k;
          }
        }
      }
    }
  }
}

TEST(Linalg, CholeskyRefusesIndefiniteAndNaN) {
  std::vector<float> indefinite = {1, 2, 2, 1};
  EXPECT_FALSE(cholesky_lower(2, indefinite.data(), 2));
  for (int64_t bad = 0; bad < 9; ++bad) {
    std::vector<double> matrix = {4, 0, 0, 1, 4, 0, 1, 1, 4};
    matrix[static_cast<size_t>(bad)] = std::numeric_limits<double>::quiet_NaN();
    const bool in_lower = bad % 3 <= bad / 3;
    EXPECT_EQ(cholesky_lower(3, matrix.data(), 3), !in_lower) << bad;
  }
}

TEST(Linalg, SolveRightInvertsTheProduct) {
  constexpr int64_t kN = 37, kM = 5;
  const std::vector<float> basis = gaussian(50 * kN, 3), x = gaussian(kM * kN, 4);
  std::vector<float> a(kN * kN, 0.0f), b(kM * kN);
  gemm(Transpose::kYes, Transpose::kNo, kN, kN, 50, 1.0f, basis.data(), kN, basis.data(), kN, 0.0f, a.data(), kN);
  for (int64_t i = 0; i < kN; ++i) a[static_cast<size_t>(i * kN + i)] += 10.0f;
  gemm(Transpose::kNo, Transpose::kNo, kM, kN, kN, 1.0f, x.data(), kN, a.data(), kN, 0.0f, b.data(), kN);
  ASSERT_TRUE(cholesky_lower(kN, a.data(), kN));
  cholesky_solve_right(kM, kN, a.data(), kN, b.data(), kN);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(b[i], x[i], 1e-4);
}

TEST(Linalg, InvertUpperGivesTheIdentity) {
  constexpr int64_t kN = 45;
  std::vector<float> upper = gaussian(kN * kN, 5);
  for (int64_t i = 0; i < kN; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      float& value = upper[static_cast<size_t>(i * kN + j)];
      value = j < i ? 0.0f : j == i ? 3.0f : 0.2f * value;
    }
  }
  std::vector<float> inverse = upper, product(kN * kN);
  ASSERT_TRUE(invert_upper(kN, inverse.data(), kN));
  gemm(Transpose::kNo, Transpose::kNo, kN, kN, kN, 1.0f, upper.data(), kN, inverse.data(), kN, 0.0f, product.data(),
       kN);
  for (int64_t i = 0; i < kN; ++i) {
    for (int64_t j = 0; j < kN; ++j) EXPECT_NEAR(product[static_cast<size_t>(i * kN + j)], i == j ? 1.0 : 0.0, 1e-5);
  }
}

// A build of OpenBLAS without threads shares its work buffers: this fails there.
TEST(Linalg, ConcurrentCallsDoNotDisturbEachOther) {
  constexpr int64_t kSize = 160, kRounds = 200;
  const auto compute = [](int64_t seed) {
    std::mt19937 rng(static_cast<uint32_t>(seed));
    std::normal_distribution<float> normal;
    std::vector<float> x(kSize * kSize), h(kSize * kSize, 0.0f), y(kSize * kSize);
    for (float& value : x) value = normal(rng);
    syrk_lower(kSize, kSize, x.data(), kSize, h.data(), kSize);
    for (int64_t i = 0; i < kSize; ++i) h[static_cast<size_t>(i * kSize + i)] += 1.0f;
    EXPECT_TRUE(cholesky_lower(kSize, h.data(), kSize));
    gemm(Transpose::kNo, Transpose::kYes, kSize, kSize, kSize, 1.0f, h.data(), kSize, x.data(), kSize, 0.0f, y.data(),
         kSize);
    y.insert(y.end(), h.begin(), h.end());
    return y;
  };
  std::vector<std::vector<float>> expected;
  for (int64_t i = 0; i < 8; ++i) expected.push_back(compute(i));
  ThreadPool pool(4);
  std::atomic<int> wrong = 0;
  pool.parallel_for(kRounds,
                    [&](int64_t i) { wrong += compute(i % 8) == expected[static_cast<size_t>(i % 8)] ? 0 : 1; });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Linalg, ItsDescriptionIsTheSameForThreadsThatAskTogether) {
  const std::string alone = linalg_description();
  std::atomic<int> different{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20000; ++n) different += linalg_description() != alone;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace trefoil
