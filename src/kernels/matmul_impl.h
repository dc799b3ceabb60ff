// The implementations of matmul.h, for its dispatch and its tests. Files compiled for one instruction set include this
// header and the intrinsics header and nothing else (style: no inline function may leave such an object).
#pragma once

#include <cstdint>

namespace trefoil {

struct MatmulArgs {
  const float* x = nullptr;  // [tokens, k], rows x_stride floats apart
  const float* w = nullptr;  // [rows, k], row-major
  float* y = nullptr;        // element (t, o) at y[t * y_stride + o]; must not overlap x or w
  int64_t tokens = 0;
  int64_t rows = 0;
  int64_t k = 0;
  int64_t x_stride = 0;  // >= k
  int64_t y_stride = 0;  // >= rows
};

using MatmulFn = void(const MatmulArgs& args) noexcept;

void matmul_scalar(const MatmulArgs& args) noexcept;
#if defined(__x86_64__)
void matmul_avx2(const MatmulArgs& args) noexcept;
void matmul_avx512(const MatmulArgs& args) noexcept;
#endif

}  // namespace trefoil
