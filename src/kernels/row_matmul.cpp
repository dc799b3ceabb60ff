#include "kernels/row_matmul.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

constexpr Impl<RowMatmulFn> kRowMatmul[] = {
#if defined(__x86_64__)
    {Isa::kAvx512, row_matmul_avx512},
    {Isa::kAvx2, row_matmul_avx2},
#endif
    {Isa::kScalar, row_matmul_scalar},
};
constexpr Impl<RowDecodeFn> kRowDecode[] = {
#if defined(__x86_64__)
    {Isa::kAvx512, row_decode_avx512},
    {Isa::kAvx2, row_decode_avx2},
#endif
    {Isa::kScalar, row_decode_scalar},
};

// The smallest bf16 not below a finite value >= 0.
uint16_t bf16_at_least(float value) {
  const uint16_t nearest = f32_to_bf16(value);
  return bf16_to_f32(nearest) < value ? static_cast<uint16_t>(nearest + 1) : nearest;
}

}  // namespace

std::span<const Impl<RowMatmulFn>> row_matmul_impls() {
  return kRowMatmul;
}
std::span<const Impl<RowDecodeFn>> row_decode_impls() {
  return kRowDecode;
}

void row_matmul(const RowMatmulArgs& args) noexcept {
  RowMatmulFn* const run = choose(kRowMatmul);
  RowMatmulArgs part = args;
  for (int64_t token = 0; token < args.tokens; token += kRowTokens) {
    part.x = args.x + token * args.x_stride;
    part.y = args.y + token * args.y_stride;
    part.tokens = std::min(kRowTokens, args.tokens - token);
    run(part);
  }
}

void row_decode(const RowMatrix& w, int64_t rows, float* out) noexcept {
  choose(kRowDecode)(w, rows, out);
}

void quantize_int8_rows(std::span<const float> w, int64_t rows, int64_t k, std::span<int8_t> q,
                        std::span<uint16_t> scale) noexcept {
  const int64_t groups = (k + kInt8Group - 1) / kInt8Group;
  TREFOIL_CHECK(static_cast<int64_t>(w.size()) == rows * k && q.size() == w.size());
  TREFOIL_CHECK(static_cast<int64_t>(scale.size()) == rows * groups);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = row * k + g * kInt8Group, end = std::min(begin + kInt8Group, (row + 1) * k);
      float most = 0;
      for (int64_t i = begin; i < end; ++i) most = std::max(most, std::fabs(w[static_cast<size_t>(i)]));
      const uint16_t bits = bf16_at_least(most / 127.0f);
      const float step = bf16_to_f32(bits);
      scale[static_cast<size_t>(row * groups + g)] = bits;
      for (int64_t i = begin; i < end; ++i) {
        const float steps = step > 0 ? w[static_cast<size_t>(i)] / step : 0.0f;
        q[static_cast<size_t>(i)] = static_cast<int8_t>(std::nearbyint(std::clamp(steps, -127.0f, 127.0f)));
      }
    }
  }
}

}  // namespace trefoil
