#include "model/mlp.h"

#include <algorithm>

namespace trefoil {

Mlp::Mlp(const ModelConfig& config, const WeightLoader& weights, Dim inner) : situ_(situ_of(config)) {
  const Dim hidden{config.hidden_size, "hidden_size"};
  gate_proj_ = weights.linear("gate_proj", inner, hidden);
  up_proj_ = weights.linear("up_proj", inner, hidden);
  down_proj_ = weights.linear("down_proj", hidden, inner);
}

std::vector<float> Mlp::forward(const Runtime& runtime, std::span<const float> x, int64_t tokens) const {
  std::vector<float> hidden = apply_linear(runtime, *gate_proj_, x, tokens);
  const std::vector<float> up = apply_linear(runtime, *up_proj_, x, tokens);
  constexpr int64_t kGrain = 8192;  // elements
  runtime.pool->parallel_ranges(static_cast<int64_t>(hidden.size()), kGrain, [&](int64_t begin, int64_t end) {
    const size_t count = static_cast<size_t>(end - begin);
    const std::span<float> gate(hidden.data() + begin, count);
    situ(situ_, gate, {up.data() + begin, count}, runtime.rounding, gate);
  });
  return apply_linear(runtime, *down_proj_, hidden, tokens);
}

}  // namespace trefoil
