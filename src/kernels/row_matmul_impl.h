// The implementations of row_matmul.h, for its dispatch and its tests. Files compiled for one instruction set include this
// header and the intrinsics header and nothing else.
#pragma once

#include <cstdint>

namespace trefoil {

enum class RowFormat { kBf16, kInt8 };

constexpr int64_t kInt8Group = 64;  // columns that share a scale
constexpr int64_t kRowTokens = 4;   // tokens that an implementation takes at once

// Consecutive rows of k columns; any alignment.
struct RowMatrix {
  RowFormat format = RowFormat::kBf16;
  const void* values = nullptr;     // bf16 or int8 [rows, k]
  const uint16_t* scale = nullptr;  // kInt8: bf16 [rows, ceil(k / kInt8Group)]
  int64_t k = 0;

  int64_t groups() const { return (k + kInt8Group - 1) / kInt8Group; }
  RowMatrix from(int64_t row) const {
    RowMatrix rest = *this;
    rest.values = static_cast<const char*>(values) + row * k * (format == RowFormat::kBf16 ? 2 : 1);
    if (scale != nullptr) rest.scale = scale + row * groups();
    return rest;
  }
};

struct RowMatmulArgs {
  RowMatrix w;
  const float* x = nullptr;  // [tokens, k], rows x_stride floats apart
  float* y = nullptr;        // element (t, o) at y[t * y_stride + o]; must not overlap the inputs
  int64_t tokens = 0;        // an implementation: at most kRowTokens
  int64_t rows = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
};

using RowMatmulFn = void(const RowMatmulArgs& args) noexcept;
using RowDecodeFn = void(const RowMatrix& w, int64_t rows, float* out) noexcept;

void row_matmul_scalar(const RowMatmulArgs& args) noexcept;
void row_decode_scalar(const RowMatrix& w, int64_t rows, float* out) noexcept;
#if defined(__x86_64__)
void row_matmul_avx2(const RowMatmulArgs& args) noexcept;
void row_decode_avx2(const RowMatrix& w, int64_t rows, float* out) noexcept;
void row_matmul_avx512(const RowMatmulArgs& args) noexcept;
void row_decode_avx512(const RowMatrix& w, int64_t rows, float* out) noexcept;
#endif

}  // namespace trefoil
