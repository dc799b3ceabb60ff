#include "kernels/attention.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/softmax.h"

namespace trefoil {
namespace {

// Tokens whose scores are computed together: enough to use the keys more than once, few enough to keep scratch small.
constexpr int64_t kTokenTile = 16;

void attend_one(const AttentionArgs& args, int64_t token, std::span<float> score) {
  for (float& value : score) value *= args.scale;
  softmax(score, args.rounding);
  const std::span<float> out(args.out + token * args.value_dim, static_cast<size_t>(args.value_dim));
  std::fill(out.begin(), out.end(), 0.0f);
  for (size_t s = 0; s < score.size(); ++s) {
    add_scaled(score[s], {args.v + static_cast<int64_t>(s) * args.v_stride, out.size()}, out);
  }
}

}  // namespace

void causal_attention(const AttentionArgs& args, std::vector<float>& scores) {
  for (int64_t begin = 0; begin < args.tokens; begin += kTokenTile) {
    const int64_t end = std::min(args.tokens, begin + kTokenTile);
    const int64_t seen = args.first + end;  // keys the last token of the tile may look at
    scores.resize(static_cast<size_t>((end - begin) * seen));
    matmul({.x = args.q + begin * args.key_dim,
            .w = args.k,
            .y = scores.data(),
            .tokens = end - begin,
            .rows = seen,
            .k = args.key_dim,
            .x_stride = args.key_dim,
            .y_stride = seen});
    for (int64_t t = begin; t < end; ++t) {
      float* row = scores.data() + (t - begin) * seen;
      attend_one(args, t, {row, static_cast<size_t>(args.first + t + 1)});
    }
  }
}

}  // namespace trefoil
