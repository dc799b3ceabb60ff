// Does the arithmetic this program relies on compute what it should on this machine? Run by `doctor`, and by `quantize`
// before it starts: compilers and libraries have been seen to miscompute on processors they do not know.
#pragma once

#include <string>

namespace trefoil {

// The matrix product of every instruction set this machine runs against the scalar one, bit for bit.
// Error(kUnsupported) names the one that differs.
void check_matmul();

// Products, rank-k updates and Cholesky factorizations of the linear algebra library against plain loops.
// Error(kUnsupported) says what differs.
void check_linear_algebra();

// f32 matrix products of one thread while `threads` are at it, in GFLOP/s: the median of a few short runs, about half a
// second in all.
double linear_algebra_gflops(int threads);

// "OpenBLAS 0.3.21 ... SkylakeX".
std::string linear_algebra_library();

}  // namespace trefoil
