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

// By expert id. Weights are all 1.
std::vector<ExpertTokens> tokens_by_expert(const Routing& routing, int64_t num_experts);

// c_t = p_t^2 / (mean(u_t^2) + eps), normalised to mean 1 over the expert's tokens, where u_t = expert_sum[t]: an error
// of an expert enters the layer's output times p_t and through an RMSNorm of u_t. docs/quantization.md, "Token
// weights".
void weigh_by_effect(std::vector<ExpertTokens>& experts, std::span<const float> expert_sum, int64_t width,
                     double rms_norm_eps);

// Rows `token` of values [tokens, width], in order: [token.size(), width].
std::vector<float> gather_rows(std::span<const float> values, int64_t width, std::span<const int64_t> token);

// sum[token[i]] += gate[i] * rows[i]. Called for the experts in ascending order it is Model::expert_sum's own sum.
void scatter_add(const ExpertTokens& tokens, std::span<const float> rows, int64_t width, std::span<float> sum);

}  // namespace trefoil
