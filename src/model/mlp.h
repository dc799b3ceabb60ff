// The gated MLP of the dense layers and of the shared experts: down(situ(gate(x), up(x))).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/model_config.h"
#include "kernels/elementwise.h"
#include "model/linear.h"
#include "model/weight_loader.h"

namespace trefoil {

inline Situ situ_of(const ModelConfig& config) {
  return {.beta = config.activation_situ_beta, .linear_beta = config.activation_situ_linear_beta};
}

class Mlp {
 public:
  // `weights` has the prefix of gate_proj, up_proj and down_proj.
  Mlp(const ModelConfig& config, const WeightLoader& weights, Dim inner);

  // x: [tokens, hidden] -> [tokens, hidden].
  std::vector<float> forward(const Runtime& runtime, std::span<const float> x, int64_t tokens) const;

 private:
  Situ situ_;
  std::unique_ptr<LinearWeight> gate_proj_, up_proj_, down_proj_;
};

}  // namespace trefoil
