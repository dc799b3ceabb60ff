// The one matrix product of this program: every Linear, the attention scores and the chunked KDA form go through it.
//   y[t, o] = sum_k x[t, k] * w[o, k]
//
// Batch invariant by contract. One output element is always computed as
//   lane[j] = fma(x[16i + j], w[16i + j], lane[j])   for i ascending, j in [0, 16), missing elements read as 0
//   eight[j] = lane[j] + lane[j + 8];  four[j] = eight[j] + eight[j + 4];  y = (four[0] + four[2]) + (four[1] +
//   four[3])
// whatever the other tokens and rows are and whichever implementation runs: the bits are the same for 1 token or 1000,
// for any split of the rows, and for scalar, AVX2 and AVX-512. Error of an element: at most (k/16 + 5) * 2^-24 * sum |x
// w|.
//
// Never starts threads: callers split the rows. k = 0 gives zeros. Cannot fail.
#pragma once

#include <span>

#include "base/cpu.h"
#include "kernels/matmul_impl.h"

namespace trefoil {

// Best first; the last one runs anywhere.
std::span<const Impl<MatmulFn>> matmul_impls();

void matmul(const MatmulArgs& args) noexcept;

}  // namespace trefoil
