#include <cmath>

#include "base/bytes.h"
#include "kernels/lanes.h"
#include "kernels/row_matmul_impl.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

float weight_of(const RowMatrix& w, int64_t row, int64_t col) {
  const int64_t at = row * w.k + col;
  if (w.format == RowFormat::kBf16) {
    return bf16_to_f32(load<uint16_t>(static_cast<const std::byte*>(w.values) + 2 * at));
  }
  return static_cast<float>(static_cast<const int8_t*>(w.values)[at]) *
         bf16_to_f32(w.scale[row * w.groups() + col / kInt8Group]);
}

float dot(const RowMatmulArgs& args, int64_t token, int64_t row) {
  const float* x = args.x + token * args.x_stride;
  float lane[kLanes] = {};
  for (int64_t i = 0; i < args.w.k; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const bool inside = i + j < args.w.k;
      lane[j] = std::fma(inside ? x[i + j] : 0.0f, inside ? weight_of(args.w, row, i + j) : 0.0f, lane[j]);
    }
  }
  return sum_lanes(lane);
}

}  // namespace

void row_matmul_scalar(const RowMatmulArgs& args) noexcept {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t o = 0; o < args.rows; ++o) args.y[t * args.y_stride + o] = dot(args, t, o);
  }
}

void row_decode_scalar(const RowMatrix& w, int64_t rows, float* out) noexcept {
  for (int64_t o = 0; o < rows; ++o) {
    for (int64_t k = 0; k < w.k; ++k) out[o * w.k + k] = weight_of(w, o, k);
  }
}

}  // namespace trefoil
