// What the tensors of a checkpoint add up to, and where they, the config and quantization_config contradict each other.
// The one pass over all names that inspect and plan share.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/model_source.h"

namespace trefoil {

struct ComponentFacts {
  int64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

struct LayerFacts {
  int64_t tensors = 0;
  int64_t experts = 0;  // routed experts of which any tensor was found
  uint64_t bytes = 0;
  uint64_t routed_bytes = 0;
};

struct ModelFacts {
  std::array<ComponentFacts, kNumComponents> components;  // by Component
  ComponentFacts unknown;                                 // names of no family
  std::vector<LayerFacts> layers;                         // by layer
  std::map<std::string, FormatSummary> plain_linears;     // Linears that are no routed experts, by dtype
  uint64_t total_bytes = 0;
  std::vector<Finding> findings;

  const ComponentFacts& of(Component component) const { return components[static_cast<size_t>(component)]; }
  uint64_t routed_bytes() const;
  uint64_t num_tensors() const;
  uint64_t text_bytes() const;
};

ModelFacts gather_facts(const ModelSource& source);

// Weight bytes a decoded token touches. The experts' share is num_experts_per_token of num_experts in every MoE layer.
TokenTraffic token_traffic(const ModelSource& source, const ModelFacts& facts);

// True for the weight of a Linear: two dimensions, ".weight", and not the embedding table.
bool is_plain_linear(std::string_view name, const TensorIdentity& identity, const Shape& shape);

}  // namespace trefoil
