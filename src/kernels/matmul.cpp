#include "kernels/matmul.h"

#include <algorithm>

namespace trefoil {
namespace {

constexpr Impl<MatmulFn> kMatmul[] = {
#if defined(__x86_64__)
    {Isa::kAvx512, matmul_avx512},
    {Isa::kAvx2, matmul_avx2},
#endif
    {Isa::kScalar, matmul_scalar},
};

// Rows of w that stay in a core's cache while all tokens pass by: half a MiB of them, in whole tiles of four.
int64_t rows_at_once(int64_t k) {
  constexpr int64_t kFloats = int64_t{1} << 17;
  return std::max<int64_t>(4, kFloats / std::max<int64_t>(k, 1) / 4 * 4);
}

}  // namespace

std::span<const Impl<MatmulFn>> matmul_impls() {
  return kMatmul;
}

void matmul(const MatmulArgs& args) noexcept {
  MatmulFn* const run = choose(kMatmul);
  const int64_t step = rows_at_once(args.k);
  MatmulArgs block = args;
  for (int64_t row = 0; row < args.rows; row += step) {
    block.w = args.w + row * args.k;
    block.y = args.y + row;
    block.rows = std::min(step, args.rows - row);
    run(block);
  }
}

}  // namespace trefoil
