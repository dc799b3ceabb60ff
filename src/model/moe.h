// The latent mixture of experts of one layer: router on the full hidden state, experts in a narrower latent space, a
// norm on their combined output, and shared experts on the full hidden state. docs/architecture.md, "Latent MoE".
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/model_config.h"
#include "kernels/elementwise.h"
#include "kernels/packed_tokens.h"
#include "model/linear.h"
#include "model/mlp.h"
#include "model/model.h"
#include "model/weight_loader.h"

namespace trefoil {

struct ExpertBatch;

class Moe {
 public:
  // `weights` has the prefix "model.layers.{layer}.block_sparse_moe.".
  Moe(const ModelConfig& config, const WeightLoader& weights);

  // See Model for what each step computes. All token blocks are row-major.
  Routing route(const Runtime& runtime, std::span<const float> h, int64_t tokens) const;
  std::vector<float> latent(const Runtime& runtime, std::span<const float> h, int64_t tokens) const;
  std::vector<float> expert_sum(const Runtime& runtime, std::span<const float> z, const Routing& routing) const {
    return expert_sum(runtime, z, routing, experts_);
  }
  std::vector<float> expert_sum(const Runtime& runtime, std::span<const float> z, const Routing& routing,
                                std::span<const ExpertLinears> experts) const;
  std::vector<float> finish(const Runtime& runtime, std::span<const float> h, std::span<const float> expert_sum,
                            int64_t tokens) const;

 private:
  void run_batch(const Runtime& runtime, std::span<const ExpertLinears> experts, const ExpertBatch& batch,
                 std::span<const float> z, const Routing& routing, std::span<float> sum) const;
  void run_tiles(const Runtime& runtime, TileMode mode, std::span<const ExpertLinears> experts,
                 const ExpertBatch& batch, const PackedTokens& z, const Routing& routing, std::span<float> sum) const;

  std::string name_;  // of the layer, for messages
  Situ situ_;
  int64_t hidden_size_, latent_size_, inner_size_, top_k_;
  double routed_scaling_factor_;
  float norm_eps_;
  std::unique_ptr<LinearWeight> gate_, down_proj_, up_proj_;
  std::vector<float> bias_;  // [num_experts]
  std::vector<float> norm_;  // [latent]
  std::vector<ExpertLinears> experts_;
  Mlp shared_experts_;
};

}  // namespace trefoil
