#include "base/vectorize.h"
#include "kernels/elementary.h"
#include "kernels/kda.h"
#include "kernels/lanes.h"

namespace trefoil {

TREFOIL_VECTORIZE void kda_log_decay(std::span<const float> g, std::span<const float> dt_bias, float exp_a_log,
                                     double lower_bound, std::span<float> lg) noexcept {
  for (size_t d = 0; d < g.size(); ++d) {
    const float x = exp_a_log * (g[d] + dt_bias[d]);
    lg[d] = static_cast<float>(lower_bound * sigmoid_core(x));
  }
}

namespace {

// One row of the state (one value channel) through one token; returns the output of that channel.
[[gnu::always_inline]] inline float step_row(float* s, const float* alpha, const float* k, const float* q, float v,
                                             float beta, int64_t dim) {
  for (int64_t d = 0; d < dim; ++d) s[d] *= alpha[d];
  const float correction = beta * (v - lane_dot(s, k, dim));
  for (int64_t d = 0; d < dim; ++d) s[d] += correction * k[d];
  return lane_dot(s, q, dim);
}

}  // namespace

TREFOIL_VECTORIZE void kda_recurrent(const KdaArgs& args, std::vector<float>& scratch) {
  const int64_t dim = args.dim;
  scratch.resize(static_cast<size_t>(dim));
  float* alpha = scratch.data();
  for (int64_t t = 0; t < args.tokens; ++t) {
    const int64_t row = t * args.stride;
    for (int64_t d = 0; d < dim; ++d) alpha[d] = exp_f32(args.lg[row + d]);
    const float beta = args.beta[t * args.beta_stride];
    for (int64_t i = 0; i < dim; ++i) {
      args.out[row + i] = step_row(args.state + i * dim, alpha, args.k + row, args.q + row, args.v[row + i], beta, dim);
    }
  }
}

}  // namespace trefoil
