// e_score_correction_bias: what makes some experts more frequent than others.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"
#include "synthetic/random_stream.h"
#include "trefoil/synthesize.h"

namespace trefoil {

// Elements [first, first + count) of a layer's bias. The router's logits are standard normal over tokens, so expert e
// passes a threshold T with the probability p_e when its bias is T - sigmoid(q(p_e)), q the upper normal quantile. T is
// where k of E equal experts would pass; the p_e sum to k = experts per token.
//   flat:        p_e = k / E, every bias 0
//   log-normal:  p_e = c exp(0.9 N_e), at most 0.9
std::vector<float> router_bias(const ModelConfig& config, SyntheticRouting routing, const RandomStream& random,
                               uint64_t first, uint64_t count);

// The p_e. `num_experts` numbers in (0, 0.9] that sum to k (k / E each when that is above 0.9).
std::vector<double> log_normal_loads(int64_t num_experts, int64_t num_experts_per_token, const RandomStream& random);

}  // namespace trefoil
