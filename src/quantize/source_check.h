// Before any work: that every tensor of the text model is there, in the dtype and shape that config.json stands for. A
// wrong width that only a late layer uses would otherwise cost the hours before it.
#pragma once

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"

namespace trefoil {

// Everything but the routed experts, which find_routed_experts() checks. Error: kNotFound for a missing tensor, kCorrupt
// for another dtype or shape, with both.
void check_text_tensors(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace trefoil
