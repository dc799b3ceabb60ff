// One block of tokens through all layers, for several sequences at once, layer by layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace trefoil {

// What one layer did; the MoE fields are empty for a dense layer. [tokens, ...].
struct LayerStep {
  std::vector<float> h;  // the FFN's input
  Routing routing;
  std::vector<float> latent, expert_sum;
};

// Attention, FFN and both residual additions of `layer`. The MoE's results go to `step`.
void run_layer(const Model& model, int64_t layer, ResidualStream& stream, std::span<const SequenceRows> sequences,
               LayerStep* step = nullptr);

// Embeds `ids` and runs every layer; the sequences' positions advance. Error(kInvalidArgument) past
// max_position_embeddings.
ResidualStream run_layers(const Model& model, std::span<const int32_t> ids, std::span<const SequenceRows> sequences);

}  // namespace trefoil
