// The latent mixture of experts of one layer: router on the full hidden state, experts in a narrower latent space, a
// norm on their combined output, and shared experts on the full hidden state. docs/architecture.md, "Latent MoE".
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/model_config.h"
#include "model/linear.h"
#include "model/mlp.h"
#include "model/model.h"
#include "model/moe_experts.h"
#include "model/weight_loader.h"
#include "stream/expert_store.h"

namespace trefoil {

// Experts whose reading has begun, ascending.
struct ExpertReads {
  std::vector<int32_t> experts;
  std::unique_ptr<ExpertStore::Batch> batch;
};

class Moe {
 public:
  // `weights` has the prefix "model.layers.{layer}.block_sparse_moe.".
  // With a store the layer's experts are taken from it, as its layer number `layer`; it outlives this.
  Moe(const ModelConfig& config, const WeightLoader& weights, int64_t layer, ExpertStore* store);

  // See Model for what each step computes. All token blocks are row-major.
  Routing route(const Runtime& runtime, std::span<const float> h, int64_t tokens) const;
  std::vector<float> latent(const Runtime& runtime, std::span<const float> h, int64_t tokens) const;
  // `started`, when given, has begun to read the experts of this routing.
  std::vector<float> expert_sum(const Runtime& runtime, std::span<const float> z, const Routing& routing,
                                ExpertReads* started = nullptr) const {
    return store_ != nullptr ? streamed_sum(runtime, z, routing, started) : expert_sum(runtime, z, routing, experts_);
  }
  std::vector<float> expert_sum(const Runtime& runtime, std::span<const float> z, const Routing& routing,
                                std::span<const ExpertLinears> experts) const;
  std::vector<float> finish(const Runtime& runtime, std::span<const float> h, std::span<const float> expert_sum,
                            int64_t tokens) const;
  // The two parts of it: the shared experts need nothing of the routed ones.
  std::vector<float> shared(const Runtime& runtime, std::span<const float> h, int64_t tokens) const;
  std::vector<float> finish(const Runtime& runtime, std::span<const float> expert_sum, int64_t tokens,
                            std::span<const float> shared) const;

  // Begins to read the experts of a routing; nothing without a store.
  ExpertReads begin_reads(const Routing& routing) const;
  // The experts of a guess at this layer's next routing are likely to be wanted. Needs a store.
  void expect(const Routing& guess) const;

 private:
  void check_stored_experts() const;
  void check_sizes(std::span<const float> z, const Routing& routing) const;
  std::vector<float> streamed_sum(const Runtime& runtime, std::span<const float> z, const Routing& routing,
                                  ExpertReads* started) const;

  std::string name_;  // of the layer, for messages
  int64_t layer_;
  ExpertStore* store_;  // null: the experts are experts_
  ExpertDims dims_;
  int64_t num_experts_, top_k_;
  double routed_scaling_factor_;
  float norm_eps_;
  std::unique_ptr<LinearWeight> gate_, down_proj_, up_proj_;
  std::vector<float> bias_;  // [num_experts]
  std::vector<float> norm_;  // [latent]
  std::vector<ExpertLinears> experts_;
  Mlp shared_experts_;
};

}  // namespace trefoil
