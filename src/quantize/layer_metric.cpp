#include "quantize/layer_metric.h"

#include <algorithm>

#include "base/error.h"
#include "quantize/hessian.h"

namespace trefoil {
namespace {

constexpr int64_t kBlockRows = 256;
constexpr double kDampening = 0.01;  // of the mean diagonal

}  // namespace

OutputMetric w2_output_metric(const WeightSource& weights, const ModelConfig& config, int64_t layer) {
  const std::string moe = fmt::format("model.layers.{}.block_sparse_moe.", layer);
  const int64_t width = config.routed_expert_hidden_size;
  const auto up = weights.linear(moe + "routed_expert_up_proj", config.hidden_size, width);
  const std::vector<float> norm = weights.vector(moe + "routed_expert_norm.weight", {width});
  try {
    HessianAccumulator moments(width);
    for (int64_t row = 0; row < config.hidden_size; row += kBlockRows) {
      const int64_t end = std::min(row + kBlockRows, config.hidden_size);
      std::vector<float> block(static_cast<size_t>((end - row) * width));
      up->decode_rows(row, end, block);
      for (size_t i = 0; i < block.size(); ++i) block[i] *= norm[i % static_cast<size_t>(width)];
      moments.add(block, {});
    }
    return prepare_output_metric(moments.mean(), width, kDampening);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("layer {} output metric: {}", layer, error.what()));
  }
}

}  // namespace trefoil
