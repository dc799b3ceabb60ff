#include <cmath>

#include "kernels/lanes.h"
#include "kernels/matmul_impl.h"

namespace trefoil {
namespace {

float dot(const float* x, const float* w, int64_t k) {
  float lane[kLanes] = {};
  for (int64_t i = 0; i < k; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const bool inside = i + j < k;
      lane[j] = std::fma(inside ? x[i + j] : 0.0f, inside ? w[i + j] : 0.0f, lane[j]);
    }
  }
  return sum_lanes(lane);
}

}  // namespace

void matmul_scalar(const MatmulArgs& args) noexcept {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t o = 0; o < args.rows; ++o) {
      args.y[t * args.y_stride + o] = dot(args.x + t * args.x_stride, args.w + o * args.k, args.k);
    }
  }
}

}  // namespace trefoil
