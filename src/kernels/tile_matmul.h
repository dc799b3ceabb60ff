// The product of a matrix in tiles (kernels/code_tiles.h) with packed tokens (kernels/packed_tokens.h): the path of every
// routed expert in decode and prefill.
//   y[t, r] = sum_g scale[r, g] * sum_{k in group g} value[r, k] * x[t, k]
//
// Batch invariant by contract, and the same bits from every implementation that a mode has. One output element is
//   kExact, a half c of a group: acc = 0; for o in 0..7, parity in 0, 1:
//             acc += value[k + 2] x[k + 2];  acc += value[k] x[k]   with k = 32c + 4o + parity, each sum rounded to f32
//           (the products are exact; this is vdpbf16ps, which takes subnormal inputs and sums as zero: results that are
//           not subnormal are the same everywhere)
//           kInt3, kInt4: y = fma(acc_0 + acc_1, scale, y), groups ascending;  kMxfp4: y = fma(acc_c, scale_c, y)
//   kFast16, kFast8: acc is an exact integer over the group (kMxfp4: over each half, values doubled to be integers)
//           y = fma(f32(acc), scale * s, y), groups ascending; fast16: acc = 256 acc_hi + acc_lo
// whatever the other tokens and rows are. Relative rms error against f64 at 3584 columns: about 1.4e-7, 2.4e-5, 6e-3.
//
// Never starts threads: callers split the row blocks. Cannot fail.
#pragma once

#include <span>

#include "base/cpu.h"
#include "kernels/tile_matmul_impl.h"

namespace trefoil {

// Best first; the last one runs anywhere and in every mode.
std::span<const Impl<TileMatmulFn>> tile_matmul_impls(TileMode mode);

void tile_matmul(const TileMatmulArgs& args) noexcept;

}  // namespace trefoil
