// Which tokens an expert sees and how much each matters: the routing of a layer turned around, and gathers by it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace trefoil {

// The tokens of one expert, ascending.
struct ExpertTokens {
  std::vector<int64_t> token;
  std::vector<float> gate;    // p: the router's weight
  std::vector<float> weight;  // c: of the token in the expert's Hessians; mean 1

  int64_t count() const { return static_cast<int64_t>(token.size()); }
};

// Adds a block of tokens, whose first is token `first_token` of the layer, to the lists of the experts from
// `first_expert` on, as many as there are lists. Blocks come in ascending order. Weights are 1.
void append_tokens(std::vector<ExpertTokens>& experts, int64_t first_expert, const Routing& block, int64_t first_token);

// mean(u_t^2) + eps of every row u_t of expert_sum [tokens, width].
std::vector<double> effect_norms(std::span<const float> expert_sum, int64_t width, double rms_norm_eps);

// c_t = p_t^2 / norm_t, normalised to mean 1 over the expert's tokens. norm: effect_norms() of the expert's own tokens, in
// their order: an error of an expert enters the layer's output times p_t and through an RMSNorm of u_t.
// docs/quantization.md, "Token weights".
void weigh_by_effect(ExpertTokens& expert, std::span<const double> norm);

}  // namespace trefoil
