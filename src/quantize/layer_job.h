// All routed experts of one layer: in parallel, in blocks of bounded memory, with sums in ascending expert order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "quantize/expert_job.h"

namespace trefoil {

// What a layer's experts leave behind.
struct LayerResult {
  LayerRecord record;  // without seconds
  std::vector<float>
      expert_sum;  // [tokens, latent] of the quantized experts, rounded as Model::expert_sum does; empty under kRtn
};

// `tokens` by expert id. Encoded experts go to `writer` in ascending order; the caller says layer_done().
// Error(kCancelled) soon after inputs.options->stop is set. Results do not depend on the pool's size.
LayerResult quantize_layer(const LayerInputs& inputs, const MoeLayer& layer, const std::vector<ExpertTokens>& tokens,
                           ThreadPool& pool, ShardWriter& writer, ProgressSink& progress);

// The last step of the sum over experts: Model::expert_sum rounds it once in bf16 numerics.
void round_expert_sum(std::span<float> expert_sum, Numerics numerics);

// Throws Error(kCancelled) when options.stop is set.
void stop_if_asked(const QuantizeOptions& options);

// H of all rows of `latent` [tokens, width], unweighted: what thin experts are shrunk towards.
std::vector<float> shared_hessian(std::span<const float> latent, int64_t width, ThreadPool& pool);

}  // namespace trefoil
