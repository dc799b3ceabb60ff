#include "quantize/activations.h"

#include <cmath>

#include "base/error.h"

namespace trefoil {
namespace {

// Enough rows for wide matrix products; a block's temporaries are a few times hidden_size of these.
constexpr int64_t kBlockTokens = 8192;

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

ActivationStream::ActivationStream(const Model& model, const std::vector<std::vector<int32_t>>& rows)
    : model_(model), fresh_(model.new_sequence()) {
  for (size_t next = 0; next < rows.size();) {
    Block block;
    block.first_row = static_cast<int64_t>(next);
    block.first_token = num_tokens_;
    std::vector<int32_t> ids;
    while (next < rows.size() &&
           (ids.empty() || static_cast<int64_t>(ids.size() + rows[next].size()) <= kBlockTokens)) {
      append(ids, rows[next]);
      block.row_lengths.push_back(static_cast<int64_t>(rows[next].size()));
      ++next;
    }
    block.residual = model_.embed(ids);
    num_tokens_ += static_cast<int64_t>(ids.size());
    blocks_.push_back(std::move(block));
  }
}

void ActivationStream::attention(int64_t layer) {
  for (Block& block : blocks_) {
    // Every row starts from nothing, and no state outlives the layer that uses it.
    std::vector<SequenceState> states(block.row_lengths.size());
    std::vector<SequenceRows> sequences;
    int64_t begin = 0;
    for (size_t row = 0; row < states.size(); ++row) {
      states[row].layers.resize(fresh_.layers.size());
      states[row].layers[static_cast<size_t>(layer)] = fresh_.layers[static_cast<size_t>(layer)];
      sequences.push_back({&states[row], begin, block.row_lengths[row]});
      begin += block.row_lengths[row];
    }
    model_.attention(layer, block.residual, sequences);
    check_finite(block, block.residual.prefix, layer, "attention");
  }
}

void ActivationStream::dense_ffn(int64_t layer) {
  for (Block& block : blocks_) {
    const std::vector<float> h = model_.ffn_input(layer, block.residual);
    model_.add_ffn(layer, block.residual, model_.dense_ffn(layer, h, block.residual.tokens));
    check_finite(block, block.residual.prefix, layer, "the dense MLP");
  }
}

MoeInput ActivationStream::moe_input(int64_t layer) const {
  MoeInput all;
  for (const Block& block : blocks_) {
    const std::vector<float> h = model_.ffn_input(layer, block.residual);
    check_finite(block, h, layer, "post_attention_layernorm");
    const Routing routing = model_.route(layer, h, block.residual.tokens);
    append(all.routing.expert, routing.expert);
    append(all.routing.weight, routing.weight);
    all.routing.top_k = routing.top_k;
    all.routing.tokens += routing.tokens;
    const std::vector<float> latent = model_.latent(layer, h, block.residual.tokens);
    check_finite(block, latent, layer, "routed_expert_down_proj");
    append(all.latent, latent);
  }
  return all;
}

void ActivationStream::moe_finish(int64_t layer, std::span<const float> expert_sum) {
  const auto width = static_cast<int64_t>(expert_sum.size()) / num_tokens_;
  for (Block& block : blocks_) {
    const int64_t tokens = block.residual.tokens;
    const std::vector<float> h = model_.ffn_input(layer, block.residual);
    const auto sum =
        expert_sum.subspan(static_cast<size_t>(block.first_token * width), static_cast<size_t>(tokens * width));
    model_.add_ffn(layer, block.residual, model_.moe_finish(layer, h, sum, tokens));
    check_finite(block, block.residual.prefix, layer, "the experts");
  }
}

void ActivationStream::check_finite(const Block& block, std::span<const float> values, int64_t layer,
                                    std::string_view step) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    const auto width = static_cast<int64_t>(values.size()) / block.residual.tokens;
    int64_t token = static_cast<int64_t>(i) / width;
    int64_t row = 0;
    while (token >= block.row_lengths[static_cast<size_t>(row)]) token -= block.row_lengths[static_cast<size_t>(row++)];
    fail(ErrorCode::kCorrupt,
         "layer {}: an activation after {} is {} (calibration row {}, token {}); is the source sound?", layer, step,
         values[i], block.first_row + row, token);
  }
}

}  // namespace trefoil
