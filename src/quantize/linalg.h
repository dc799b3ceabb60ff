// Dense linear algebra for the solver: a thin, always single-threaded layer over OpenBLAS.
//
// Parallelism is over experts and lies with the caller, so no result depends on the number of threads. Matrices are
// row-major with a leading dimension in elements. Sizes must fit the 32-bit integers of BLAS (checked: Error
// kUnsupported). All functions may be called from several threads at once, on different memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trefoil {

// Makes the library single-threaded, with kernels that suit the processor; idempotent. Every function below calls it first.
void linalg_init();

// Error(kOverBudget) when `threads` callers' buffers do not fit the process's address space: the library would ask for
// them again and again, for ever.
void linalg_check_room(int threads);

// "OpenBLAS 0.3.21 ... SkylakeX", for reports.
std::string linalg_description();

// Runs gemm, syrk and the Cholesky factorization in both precisions on small known problems and compares with plain
// loops. Some OpenBLAS builds compute wrong results on processors they do not know. Nothing when all agree, else what
// does not.
std::optional<std::string> linalg_self_test();

enum class Transpose { kNo, kYes };

// C[m, n] = alpha * op(A)[m, k] * op(B)[k, n] + beta * C
void gemm(Transpose trans_a, Transpose trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(Transpose trans_a, Transpose trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
          int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

// Lower triangle of C[n, n] += X^T X, X [k, n]. The strict upper triangle is not touched.
void syrk_lower(int64_t n, int64_t k, const float* x, int64_t ldx, float* c, int64_t ldc);

// A[n, n] = L L^T from the lower triangle of A, in place; the strict upper triangle is not touched.
// False when A is not positive definite or the factor is not finite (then the lower triangle is unspecified).
bool cholesky_lower(int64_t n, float* a, int64_t lda);
bool cholesky_lower(int64_t n, double* a, int64_t lda);

// In place inverse of an upper triangular matrix. False when a diagonal entry is zero.
bool invert_upper(int64_t n, float* a, int64_t lda);

// Solves X A = B for X given the Cholesky factor L of A (cholesky_lower): B [m, n] becomes X.
void cholesky_solve_right(int64_t m, int64_t n, const float* l, int64_t ldl, float* b, int64_t ldb);

}  // namespace trefoil
