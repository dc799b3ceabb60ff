#include "eval/forward_layers.h"

#include "base/error.h"

namespace trefoil {

void run_layer(const Model& model, int64_t layer, ResidualStream& stream, std::span<const SequenceRows> sequences,
               LayerStep* step) {
  model.attention(layer, stream, sequences);
  std::vector<float> h = model.ffn_input(layer, stream);
  if (!model.config().is_moe(layer)) {
    model.add_ffn(layer, stream, model.dense_ffn(layer, h, stream.tokens));
    if (step != nullptr) *step = {std::move(h), {}, {}, {}};
    return;
  }
  Routing routing = model.route(layer, h, stream.tokens);
  std::vector<float> latent = model.latent(layer, h, stream.tokens);
  std::vector<float> sum = model.expert_sum(layer, latent, routing);
  model.add_ffn(layer, stream, model.moe_finish(layer, h, sum, stream.tokens));
  if (step != nullptr) *step = {std::move(h), std::move(routing), std::move(latent), std::move(sum)};
}

ResidualStream run_layers(const Model& model, std::span<const int32_t> ids, std::span<const SequenceRows> sequences) {
  const int64_t limit = model.config().max_position_embeddings;
  for (const SequenceRows& rows : sequences) {
    if (rows.state->position + rows.count > limit) {
      fail(ErrorCode::kInvalidArgument, "a row of more than {} tokens exceeds max_position_embeddings {}",
           rows.state->position + rows.count - 1, limit);
    }
  }
  ResidualStream stream = model.embed(ids);
  for (int64_t layer = 0; layer < model.config().num_hidden_layers; ++layer) {
    run_layer(model, layer, stream, sequences);
  }
  for (const SequenceRows& rows : sequences) rows.state->position += rows.count;
  return stream;
}

}  // namespace trefoil
