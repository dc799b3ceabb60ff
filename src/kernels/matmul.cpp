#include "kernels/matmul.h"

namespace trefoil {
namespace {

constexpr Impl<MatmulFn> kMatmul[] = {
#if defined(__x86_64__)
    {Isa::kAvx512, matmul_avx512},
    {Isa::kAvx2, matmul_avx2},
#endif
    {Isa::kScalar, matmul_scalar},
};

}  // namespace

std::span<const Impl<MatmulFn>> matmul_impls() {
  return kMatmul;
}

void matmul(const MatmulArgs& args) noexcept {
  choose(kMatmul)(args);
}

}  // namespace trefoil
