// For tests: every text tensor a config asks for, filled by a function of its name, so that whole models of any shape
// can be made without a file.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "kernels/random_test_data.h"
#include "model/memory_weights.h"

namespace trefoil::testing {

struct NamedShape {
  std::string name;
  Shape shape;
};

// All tensors of the model, by the names MemoryWeights takes, experts as plain matrices.
std::vector<NamedShape> text_tensors(const ModelConfig& config);

using FillTensor = std::function<std::vector<float>(const std::string& name, int64_t size)>;
std::shared_ptr<MemoryWeights> make_weights(const ModelConfig& config, const FillTensor& fill);

// Random weights of sensible sizes: norms near 1, A_log = log of U(1, 16), matrices scaled so that activations stay
// near 1. Every value is exact in bf16, so that a bf16 or MXFP4-like copy can hold the same numbers.
std::shared_ptr<MemoryWeights> random_weights(const ModelConfig& config, uint64_t seed);

// A small config with the given number of layers: MLA at every 4th layer and the last, MoE from layer 1.
ModelConfig small_config(int64_t layers);

inline std::vector<int32_t> random_ids(const ModelConfig& config, int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.bits() % static_cast<uint64_t>(config.vocab_size));
  return ids;
}

}  // namespace trefoil::testing
