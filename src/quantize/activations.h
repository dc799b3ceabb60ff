// The calibration text on its way through the model: the residual stream of every row, one decoder layer at a time.
//
// Rows are kept in blocks of whole sequences, and every step works on one block at a time, so that what a step needs
// beyond the stream itself does not grow with the amount of text. Results do not depend on the size of the blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace trefoil {

// What the routed experts of a layer read, for all tokens of the stream.
struct MoeInput {
  Routing routing;
  std::vector<float> latent;  // [tokens, routed_expert_hidden_size]
};

class ActivationStream {
 public:
  // Embeds `rows`. `model` must outlive the stream.
  ActivationStream(const Model& model, const std::vector<std::vector<int32_t>>& rows);

  int64_t num_tokens() const { return num_tokens_; }

  // Each step of a layer, in this order: attention, then dense_ffn, or moe_input and moe_finish.
  // Error(kCorrupt) naming the layer, row and token when a value is not finite.
  void attention(int64_t layer);
  void dense_ffn(int64_t layer);
  MoeInput moe_input(int64_t layer) const;
  // expert_sum [tokens, routed_expert_hidden_size]: the weighted sum of the experts' outputs.
  void moe_finish(int64_t layer, std::span<const float> expert_sum);

 private:
  struct Block {
    ResidualStream residual;
    std::vector<int64_t> row_lengths;
    int64_t first_row = 0;
    int64_t first_token = 0;
  };
  void check_finite(const Block& block, std::span<const float> values, int64_t layer, std::string_view step) const;

  const Model& model_;
  SequenceState fresh_;  // of a sequence that has seen nothing
  std::vector<Block> blocks_;
  int64_t num_tokens_ = 0;
};

}  // namespace trefoil
