#include "quantize/linalg.h"

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/parallel.h"
#include "trefoil/self_check.h"

// LAPACK, which OpenBLAS contains: its Fortran names, column-major. And, in builds for several processors, the two
// functions with which it chooses its kernels when it is loaded; absent in others.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming): names of others.
void spotrf_(const char* uplo, const int* n, float* a, const int* lda, int* info);
void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info);
void strtri_(const char* uplo, const char* diag, const int* n, float* a, const int* lda, int* info);
[[gnu::weak]] void gotoblas_dynamic_init();
[[gnu::weak]] void gotoblas_dynamic_quit();
// NOLINTEND(readability-identifier-naming)
}

namespace trefoil {
namespace {

int blas_int(int64_t value) {
  if (value < 0 || value > std::numeric_limits<int>::max()) {
    fail(ErrorCode::kUnsupported, "matrix dimension {} is beyond the 32-bit integers of BLAS", value);
  }
  return static_cast<int>(value);
}

CBLAS_TRANSPOSE to_cblas(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

template <typename T>
bool diagonal_is_positive(int64_t n, const T* a, int64_t lda) {
  // A NaN passes through some factorizations without an error; it always reaches the last pivot it touches.
  for (int64_t i = 0; i < n; ++i) {
    const T pivot = a[i * lda + i];
    if (!(pivot > T(0)) || !std::isfinite(pivot)) return false;
  }
  return true;
}

// Small deterministic values in [-1, 1), exact in f32.
template <typename T>
std::vector<T> known_values(int64_t count, uint32_t seed) {
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<T>(static_cast<int32_t>(seed >> 16) - 32768) / T(32768);
  }
  return values;
}

// One problem of n columns and k rows; the plain loops accumulate in f64.
template <typename T>
std::optional<std::string> self_test_size(int64_t n, int64_t k) {
  const std::vector<T> x = known_values<T>(k * n, static_cast<uint32_t>(n * 131 + k));
  const double tolerance = 16.0 * static_cast<double>(k + n) * static_cast<double>(std::numeric_limits<T>::epsilon());
  const auto at = [n](int64_t i, int64_t j) { return static_cast<size_t>(i * n + j); };
  std::vector<double> want(static_cast<size_t>(n * n), 0.0);
  for (int64_t t = 0; t < k; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j)
        want[at(i, j)] += static_cast<double>(x[at(t, i)]) * static_cast<double>(x[at(t, j)]);
    }
  }
  std::vector<T> gram(static_cast<size_t>(n * n), T(0));
  gemm(Transpose::kYes, Transpose::kNo, n, n, k, T(1), x.data(), n, x.data(), n, T(0), gram.data(), n);
  for (int64_t i = 0; i < n * n; ++i) {
    if (!(std::abs(static_cast<double>(gram[static_cast<size_t>(i)]) - want[static_cast<size_t>(i)]) <= tolerance)) {
      return fmt::format("gemm is wrong at n {}, k {}, {} bytes per element", n, k, sizeof(T));
    }
  }
  if constexpr (sizeof(T) == 4) {
    std::vector<T> lower(static_cast<size_t>(n * n), T(0));
    syrk_lower(n, k, x.data(), n, lower.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const double expected = j <= i ? want[at(i, j)] : 0.0;
        if (!(std::abs(static_cast<double>(lower[at(i, j)]) - expected) <= tolerance)) {
          return fmt::format("syrk is wrong at n {}, k {}", n, k);
        }
      }
    }
  }
  for (int64_t i = 0; i < n; ++i) gram[at(i, i)] += static_cast<T>(n);
  std::vector<T> factor = gram;
  if (!cholesky_lower(n, factor.data(), n))
    return fmt::format("potrf fails on a positive definite matrix of {} columns", n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (int64_t t = 0; t <= j; ++t)
        sum += static_cast<double>(factor[at(i, t)]) * static_cast<double>(factor[at(j, t)]);
      if (!(std::abs(sum - static_cast<double>(gram[at(i, j)])) <= tolerance * 4)) {
        return fmt::format("potrf is wrong at n {}, {} bytes per element", n, sizeof(T));
      }
    }
  }
  return std::nullopt;
}

}  // namespace

// openblas_get_parallel(): 0 sequential, 1 pthread, 2 OpenMP. A sequential build shares its work buffers without a lock.
constexpr int kSequentialBuild = 0;

// Of address space, for each thread inside a call (0.3.21: BUFFER_SIZE, 32 << 22).
constexpr size_t kBufferBytes = size_t{32} << 22;

namespace {

// OpenBLAS falls back to kernels for SSE3 on processors that are newer than itself: a fifth of the speed where AVX-512 is to
// be had. Then its choice is made again, as if OPENBLAS_CORETYPE had named the kernels that this processor runs. (0.3.21
// knows nothing of family 6 model 207, for one.) Whoever sets that variable has chosen.
void use_wide_kernels() {
  constexpr const char* kCoreType = "OPENBLAS_CORETYPE";
  constexpr std::string_view kFallback = "Prescott";
  const bool adaptable = gotoblas_dynamic_init != nullptr && gotoblas_dynamic_quit != nullptr;
  if (!adaptable || std::getenv(kCoreType) != nullptr || openblas_get_corename() != kFallback) return;
  if (detected_isa() == Isa::kScalar) return;
  ::setenv(kCoreType, detected_isa() >= Isa::kAvx512 ? "SkylakeX" : "Haswell", 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  ::unsetenv(kCoreType);
}

}  // namespace

void linalg_init() {
  static std::once_flag once;
  std::call_once(once, [] {
    use_wide_kernels();
    openblas_set_num_threads(1);
  });
}

void linalg_check_room(int threads) {
  linalg_init();
  const size_t bytes = kBufferBytes * static_cast<size_t>(threads);
  void* room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    fail(ErrorCode::kOverBudget,
         "{} of address space for the linear algebra library's {} threads are not to be had (ulimit -v?)",
         format_gb(bytes), threads);
  }
  ::munmap(room, bytes);
}

std::string linalg_description() {
  linalg_init();
  // Once: openblas_get_config() writes into a buffer of its own and returns it.
  static const std::string description = fmt::format("{} on {}", openblas_get_config(), openblas_get_corename());
  return description;
}

std::optional<std::string> linalg_self_test() {
  if (openblas_get_parallel() == kSequentialBuild)
    return "it is a build without threads, whose calls from several threads corrupt each other (link the pthread "
           "build)";
  // Around the register blocks (4, 8, 16), the small-matrix kernels, and past the first cache block.
  for (const int64_t n : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 48, 64, 65, 129}) {
    for (const int64_t k : {1, 5, 32, 67}) {
      if (auto wrong = self_test_size<float>(n, k)) return wrong;
      if (auto wrong = self_test_size<double>(n, k)) return wrong;
    }
  }
  return std::nullopt;
}

void gemm(Transpose trans_a, Transpose trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  linalg_init();
  cblas_sgemm(CblasRowMajor, to_cblas(trans_a), to_cblas(trans_b), blas_int(m), blas_int(n), blas_int(k), alpha, a,
              blas_int(lda), b, blas_int(ldb), beta, c, blas_int(ldc));
}

void gemm(Transpose trans_a, Transpose trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
          int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  linalg_init();
  cblas_dgemm(CblasRowMajor, to_cblas(trans_a), to_cblas(trans_b), blas_int(m), blas_int(n), blas_int(k), alpha, a,
              blas_int(lda), b, blas_int(ldb), beta, c, blas_int(ldc));
}

void syrk_lower(int64_t n, int64_t k, const float* x, int64_t ldx, float* c, int64_t ldc) {
  linalg_init();
  cblas_ssyrk(CblasRowMajor, CblasLower, CblasTrans, blas_int(n), blas_int(k), 1.0f, x, blas_int(ldx), 1.0f, c,
              blas_int(ldc));
}

// A row-major lower triangle is a column-major upper one, and A = L L^T = U^T U with U = L^T: no copy is needed.
bool cholesky_lower(int64_t n, float* a, int64_t lda) {
  linalg_init();
  const int size = blas_int(n), stride = blas_int(lda);
  int info = 0;
  spotrf_("U", &size, a, &stride, &info);
  return info == 0 && diagonal_is_positive(n, a, lda);
}

bool cholesky_lower(int64_t n, double* a, int64_t lda) {
  linalg_init();
  const int size = blas_int(n), stride = blas_int(lda);
  int info = 0;
  dpotrf_("U", &size, a, &stride, &info);
  return info == 0 && diagonal_is_positive(n, a, lda);
}

bool invert_upper(int64_t n, float* a, int64_t lda) {
  linalg_init();
  const int size = blas_int(n), stride = blas_int(lda);
  int info = 0;
  strtri_("L", "N", &size, a, &stride, &info);
  return info == 0;
}

void cholesky_solve_right(int64_t m, int64_t n, const float* l, int64_t ldl, float* b, int64_t ldb) {
  linalg_init();
  // X L L^T = B: first Y L^T = B, then X L = Y.
  cblas_strsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, blas_int(m), blas_int(n), 1.0f, l,
              blas_int(ldl), b, blas_int(ldb));
  cblas_strsm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit, blas_int(m), blas_int(n), 1.0f, l,
              blas_int(ldl), b, blas_int(ldb));
}

void check_linear_algebra() {
  if (const std::optional<std::string> wrong = linalg_self_test())
    fail(ErrorCode::kUnsupported, "{} computes wrong results on this machine: {}", linalg_description(), *wrong);
}

double linear_algebra_gflops(int threads) {
  constexpr int64_t kSize = 1024;
  constexpr int kRuns = 7;
  const std::vector<float> a = known_values<float>(kSize * kSize, 1);
  ThreadPool pool(threads);
  std::vector<std::vector<float>> products(static_cast<size_t>(threads),
                                           std::vector<float>(static_cast<size_t>(kSize * kSize)));
  std::vector<double> rates;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(threads, [&](int64_t i) {
      gemm(Transpose::kNo, Transpose::kNo, kSize, kSize, kSize, 1.0f, a.data(), kSize, a.data(), kSize, 0.0f,
           products[static_cast<size_t>(i)].data(), kSize);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    rates.push_back(2.0 * kSize * kSize * kSize / seconds / 1e9);
  }
  std::nth_element(rates.begin(), rates.begin() + kRuns / 2, rates.end());
  return rates[kRuns / 2];
}

std::string linear_algebra_library() {
  return linalg_description();
}

}  // namespace trefoil
