// What an error at the output of w2 costs behind it: the metric G of two_sided.h, one for all experts of a layer.
//
// The experts' sum u goes through y = U RMSNorm(u) with U = routed_expert_up_proj and RMSNorm(u) = D u / rms(u), D the
// diagonal of routed_expert_norm's weight. A small error e of u changes y by U D e / rms(u) (the change of rms(u) itself
// left out), so it costs e^T (D U^T U D) e / rms(u)^2; 1 / rms(u)^2 is in the token weights already.
#pragma once

#include <cstdint>

#include "checkpoint/model_config.h"
#include "model/weights.h"
#include "quantize/two_sided.h"

namespace trefoil {

// G = D U^T U D of a MoE layer, damped by 1 % of its mean diagonal. Reads U in blocks of rows.
// Errors as WeightSource; kCorrupt naming the layer when an entry is not finite.
OutputMetric w2_output_metric(const WeightSource& weights, const ModelConfig& config, int64_t layer);

}  // namespace trefoil
