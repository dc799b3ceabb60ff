// The routed experts of a source checkpoint: where each of their Linears is, checked for completeness before any work.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/linear_storage.h"
#include "checkpoint/model_config.h"

namespace trefoil {

// The three Linears of an expert, in the order of their names. w1 gate and w3 up: [inner, latent]; w2 down: [latent,
// inner].
enum class ExpertPart { kW1, kW2, kW3 };
constexpr std::array<ExpertPart, 3> kExpertParts = {ExpertPart::kW1, ExpertPart::kW2, ExpertPart::kW3};
const char* to_string(ExpertPart part);  // "w1"

struct RoutedExpert {
  std::array<StoredLinear, 3> linear;  // by ExpertPart
  const StoredLinear& part(ExpertPart which) const { return linear[static_cast<size_t>(which)]; }
};

struct MoeLayer {
  int64_t layer = 0;  // decoder layer
  std::vector<RoutedExpert> experts;
};

// Every routed expert of every MoE layer, layers ascending. The StoredLinears point into `checkpoint`.
// Refuses a checkpoint whose experts are not MXFP4 (kUnsupported, naming the tensor and what it is), one with an expert
// Linear missing, one too many, or of a shape the config does not say (kCorrupt / kNotFound).
std::vector<MoeLayer> find_routed_experts(const Checkpoint& checkpoint, const ModelConfig& config);

// "language_model.model.layers.3.block_sparse_moe.experts.17.w1"
std::string expert_module(std::string_view prefix, int64_t layer, int64_t expert, ExpertPart part);

}  // namespace trefoil
