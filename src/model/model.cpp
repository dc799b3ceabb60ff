#include "model/model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "model/decoder_layer.h"

namespace trefoil {

struct Model::Impl {
  ModelConfig config;
  ForwardOptions options;
  std::shared_ptr<const WeightSource> weights;
  std::shared_ptr<ExpertStore> experts;  // may be null
  Runtime runtime;
  std::unique_ptr<LinearWeight> embed_tokens, lm_head;
  std::vector<DecoderLayer> layers;
  AttnResSite output_mix;
  std::vector<float> final_norm;

  Impl(const ModelConfig& model_config, std::shared_ptr<const WeightSource> source,
       const ForwardOptions& forward_options, ThreadPool& pool, std::shared_ptr<ExpertStore> store);

  const DecoderLayer& layer(int64_t index) const {
    TREFOIL_CHECK(index >= 0 && index < config.num_hidden_layers);
    return layers[static_cast<size_t>(index)];
  }
  float eps() const { return static_cast<float>(config.rms_norm_eps); }

  // rms_norm of every row of x, in place.
  void norm_rows(std::vector<float>& x, const std::vector<float>& weight) const {
    const int64_t hidden = config.hidden_size;
    runtime.pool->parallel_for(static_cast<int64_t>(x.size()) / hidden, [&](int64_t t) {
      const std::span<float> row = row_of(std::span(x), t, hidden);
      rms_norm(row, weight, eps(), runtime.rounding, row);
    });
  }

  void check_stream(const ResidualStream& stream) const {
    TREFOIL_CHECK(stream.hidden == config.hidden_size);
    TREFOIL_CHECK(stream.prefix.size() == block_size(stream.tokens, stream.hidden));
  }
  std::vector<float> logits(const ResidualStream& stream, int64_t begin, int64_t count, int64_t first_position) const;
  std::vector<float> ffn(const Model& model, int64_t index, std::span<const float> h, int64_t tokens,
                         LayerTap* tap) const;
  void expect_experts(const Model& model, int64_t index, const ResidualStream& stream) const;
  ResidualStream run_layers(const Model& model, std::span<const int32_t> ids, std::span<const SequenceRows> rows,
                            std::vector<LayerTap>* taps) const;
  const Moe& moe(int64_t index) const {
    TREFOIL_CHECK(layer(index).moe != nullptr);
    return *layer(index).moe;
  }
};

Model::Impl::Impl(const ModelConfig& model_config, std::shared_ptr<const WeightSource> source,
                  const ForwardOptions& forward_options, ThreadPool& pool, std::shared_ptr<ExpertStore> store)
    : config(model_config),
      options(forward_options),
      weights(std::move(source)),
      experts(std::move(store)),
      runtime{rounding_of(forward_options.numerics), &pool, forward_options.kernels},
      output_mix(config, WeightLoader(*weights, "model."), "output_attn_res") {
  const Dim hidden{config.hidden_size, "hidden_size"};
  const Dim vocab{config.vocab_size, "vocab_size"};
  embed_tokens = WeightLoader(*weights, "model.").linear("embed_tokens", vocab, hidden);
  lm_head = WeightLoader(*weights, "").linear("lm_head", vocab, hidden);
  final_norm = WeightLoader(*weights, "model.").weight_vector("norm", hidden);
  layers.reserve(static_cast<size_t>(config.num_hidden_layers));
  for (int64_t l = 0; l < config.num_hidden_layers; ++l) layers.emplace_back(config, *weights, l, experts.get());
}

Model::Model(const ModelConfig& config, std::shared_ptr<const WeightSource> weights, const ForwardOptions& options,
             ThreadPool& pool, std::shared_ptr<ExpertStore> experts)
    : impl_(std::make_unique<Impl>(config, std::move(weights), options, pool, std::move(experts))) {}

Model::~Model() = default;

const ModelConfig& Model::config() const {
  return impl_->config;
}
const ForwardOptions& Model::options() const {
  return impl_->options;
}

void Model::set_profile(Profile* profile) {
  impl_->runtime.profile = profile;
}

SequenceState Model::new_sequence() const {
  SequenceState state;
  for (const DecoderLayer& layer : impl_->layers) {
    state.layers.push_back(layer.kda ? layer.kda->new_state() : LayerState{});
  }
  return state;
}

ResidualStream Model::embed(std::span<const int32_t> ids) const {
  const ModelConfig& config = impl_->config;
  ResidualStream stream;
  stream.tokens = static_cast<int64_t>(ids.size());
  stream.hidden = config.hidden_size;
  stream.prefix.resize(block_size(stream.tokens, stream.hidden));
  for (int64_t t = 0; t < stream.tokens; ++t) {
    const int64_t id = ids[static_cast<size_t>(t)];
    if (id < 0 || id >= config.vocab_size) {
      fail(ErrorCode::kInvalidArgument, "token {} of the input is id {}, expected 0 <= id < vocab_size {}", t, id,
           config.vocab_size);
    }
    impl_->embed_tokens->decode_rows(id, id + 1, row_of(std::span(stream.prefix), t, stream.hidden));
  }
  round_in_place(stream.prefix, impl_->runtime.rounding);
  return stream;
}

void Model::attention(int64_t layer, ResidualStream& stream, std::span<const SequenceRows> sequences,
                      LayerTap* tap) const {
  const DecoderLayer& weights = impl_->layer(layer);
  const Runtime& runtime = impl_->runtime;
  impl_->check_stream(stream);
  std::vector<LayerState*> states;
  for (const SequenceRows& rows : sequences) {
    TREFOIL_CHECK(rows.begin >= 0 && rows.count >= 0 && rows.begin + rows.count <= stream.tokens);
    TREFOIL_CHECK(rows.state->layers.size() == impl_->layers.size());
    states.push_back(&rows.state->layers[static_cast<size_t>(layer)]);
  }

  std::vector<float> h;
  {
    const ProfileScope scope(runtime.profile, ForwardPart::kAttnRes);
    h = stream.stack.empty() ? stream.prefix : weights.attention_mix.mix(runtime, stream, 0, stream.tokens);
    impl_->norm_rows(h, weights.input_norm);
  }
  const ProfileScope scope(runtime.profile, ForwardPart::kAttnProjections);
  std::vector<float> out = weights.kda
                               ? weights.kda->forward(runtime, impl_->options.kda, h, stream.tokens, sequences, states)
                               : weights.mla->forward(runtime, impl_->options.mla, h, stream.tokens, sequences, states);
  if (tap != nullptr) {
    tap->attn_in = std::move(h);
    tap->attn_out = out;
  }
  if (layer % impl_->config.attn_res_block_size == 0) {
    // A block begins: the sum so far (not the mix) is stacked and the running sum starts again.
    stream.stack.push_back(std::exchange(stream.prefix, std::move(out)));
  } else {
    add(stream.prefix, out, runtime.rounding, stream.prefix);
  }
}

std::vector<float> Model::ffn_input(int64_t layer, const ResidualStream& stream) const {
  impl_->check_stream(stream);
  const ProfileScope scope(impl_->runtime.profile, ForwardPart::kAttnRes);
  const DecoderLayer& weights = impl_->layer(layer);
  std::vector<float> h = weights.mlp_mix.mix(impl_->runtime, stream, 0, stream.tokens);
  impl_->norm_rows(h, weights.post_attention_norm);
  return h;
}

void Model::add_ffn(int64_t layer, ResidualStream& stream, std::span<const float> out) const {
  impl_->layer(layer);
  TREFOIL_CHECK(out.size() == stream.prefix.size());
  add(stream.prefix, out, impl_->runtime.rounding, stream.prefix);
}

std::vector<float> Model::dense_ffn(int64_t layer, std::span<const float> h, int64_t tokens) const {
  TREFOIL_CHECK(impl_->layer(layer).dense != nullptr);
  const ProfileScope scope(impl_->runtime.profile, ForwardPart::kDenseMlp);
  return impl_->layer(layer).dense->forward(impl_->runtime, h, tokens);
}

Routing Model::route(int64_t layer, std::span<const float> h, int64_t tokens) const {
  const ProfileScope scope(impl_->runtime.profile, ForwardPart::kRouter);
  return impl_->moe(layer).route(impl_->runtime, h, tokens);
}

std::vector<float> Model::latent(int64_t layer, std::span<const float> h, int64_t tokens) const {
  const ProfileScope scope(impl_->runtime.profile, ForwardPart::kLatent);
  return impl_->moe(layer).latent(impl_->runtime, h, tokens);
}

std::vector<float> Model::expert_sum(int64_t layer, std::span<const float> z, const Routing& routing) const {
  const ProfileScope scope(impl_->runtime.profile, ForwardPart::kExperts);
  return impl_->moe(layer).expert_sum(impl_->runtime, z, routing);
}

std::vector<float> Model::expert_sum(int64_t layer, std::span<const float> z, const Routing& routing,
                                     std::span<const ExpertLinears> experts) const {
  return impl_->moe(layer).expert_sum(impl_->runtime, z, routing, experts);
}

std::vector<float> Model::moe_finish(int64_t layer, std::span<const float> h, std::span<const float> expert_sum,
                                     int64_t tokens) const {
  const ProfileScope scope(impl_->runtime.profile, ForwardPart::kLatent);
  return impl_->moe(layer).finish(impl_->runtime, h, expert_sum, tokens);
}

std::vector<float> Model::Impl::logits(const ResidualStream& stream, int64_t begin, int64_t count,
                                       int64_t first_position) const {
  check_stream(stream);
  TREFOIL_CHECK(begin >= 0 && count >= 0 && begin + count <= stream.tokens);
  const ProfileScope scope(runtime.profile, ForwardPart::kLmHead);
  std::vector<float> x = output_mix.mix(runtime, stream, begin, count);
  norm_rows(x, final_norm);
  std::vector<float> out = apply_linear(runtime, *lm_head, x, count);
  for (int64_t t = 0; t < count; ++t) {
    const std::span<const float> row = row_of(std::span<const float>(out), t, config.vocab_size);
    const auto bad = std::find_if_not(row.begin(), row.end(), [](float value) { return std::isfinite(value); });
    if (bad != row.end()) {
      fail(ErrorCode::kCorrupt, "logits at position {}: id {} is {}", first_position + begin + t, bad - row.begin(),
           *bad);
    }
  }
  return out;
}

std::vector<float> Model::logits(const ResidualStream& stream, int64_t begin, int64_t count) const {
  return impl_->logits(stream, begin, count, 0);
}

// One layer's FFN over the whole block. With a store the experts' reads begin as soon as they are known, and what does not
// need them is computed meanwhile.
std::vector<float> Model::Impl::ffn(const Model& model, int64_t index, std::span<const float> h, int64_t tokens,
                                    LayerTap* tap) const {
  if (!config.is_moe(index)) return model.dense_ffn(index, h, tokens);
  Routing routing = model.route(index, h, tokens);
  ExpertReads reads = moe(index).begin_reads(routing);
  std::vector<float> z = model.latent(index, h, tokens);
  const std::vector<float> shared = moe(index).shared(runtime, h, tokens);
  std::vector<float> sum;
  {
    const ProfileScope scope(runtime.profile, ForwardPart::kExperts);
    sum = moe(index).expert_sum(runtime, z, routing, reads.batch != nullptr ? &reads : nullptr);
  }
  const ProfileScope scope(runtime.profile, ForwardPart::kLatent);
  std::vector<float> out = moe(index).finish(runtime, sum, tokens, shared);
  if (tap != nullptr) {
    tap->routing = std::move(routing);
    tap->latent = std::move(z);
    tap->expert_sum = std::move(sum);
  }
  return out;
}

// The next layer's router on what the stream holds before that layer's attention: most of its choices already stand, and
// their reads run while the attention computes.
void Model::Impl::expect_experts(const Model& model, int64_t index, const ResidualStream& stream) const {
  constexpr int64_t kFewTokens = 8;  // more of them use so many experts that a guess would flood the drive
  if (experts == nullptr || !options.lookahead || stream.tokens > kFewTokens || stream.stack.empty()) return;
  if (index >= config.num_hidden_layers || !config.is_moe(index)) return;
  moe(index).expect(model.route(index, model.ffn_input(index, stream), stream.tokens));
}

ResidualStream Model::Impl::run_layers(const Model& model, std::span<const int32_t> ids,
                                       std::span<const SequenceRows> rows, std::vector<LayerTap>* taps) const {
  for (const SequenceRows& sequence : rows) {
    if (sequence.state->position + sequence.count > config.max_position_embeddings) {
      fail(ErrorCode::kInvalidArgument, "{} tokens after {} exceed max_position_embeddings {}", sequence.count,
           sequence.state->position, config.max_position_embeddings);
    }
  }
  ResidualStream stream = model.embed(ids);
  if (taps != nullptr) taps->assign(layers.size(), LayerTap());
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    LayerTap* tap = taps != nullptr ? &(*taps)[static_cast<size_t>(layer)] : nullptr;
    model.attention(layer, stream, rows, tap);
    std::vector<float> h = model.ffn_input(layer, stream);
    std::vector<float> out = ffn(model, layer, h, stream.tokens, tap);
    model.add_ffn(layer, stream, out);
    expect_experts(model, layer + 1, stream);
    if (tap != nullptr) {
      tap->mlp_in = std::move(h);
      tap->mlp_out = std::move(out);
      tap->prefix = stream.prefix;
    }
  }
  return stream;
}

std::vector<float> Model::forward(std::span<const int32_t> ids, SequenceState& state, bool last_only,
                                  std::vector<LayerTap>* taps) const {
  const int64_t tokens = static_cast<int64_t>(ids.size());
  if (tokens == 0) return {};
  const SequenceRows rows{&state, 0, tokens};
  const ResidualStream stream = impl_->run_layers(*this, ids, {&rows, 1}, taps);
  const int64_t first = last_only ? tokens - 1 : 0;
  std::vector<float> result = impl_->logits(stream, first, tokens - first, state.position);
  state.position += tokens;
  return result;
}

std::vector<float> Model::forward(std::span<const SequenceTokens> sequences) const {
  std::vector<int32_t> ids;
  std::vector<SequenceRows> rows;
  for (const SequenceTokens& sequence : sequences) {
    TREFOIL_CHECK(!sequence.ids.empty());
    rows.push_back({sequence.state, static_cast<int64_t>(ids.size()), static_cast<int64_t>(sequence.ids.size())});
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end());
  }
  const ResidualStream stream = impl_->run_layers(*this, ids, rows, nullptr);
  ResidualStream last{.tokens = static_cast<int64_t>(rows.size()), .hidden = stream.hidden, .prefix = {}, .stack = {}};
  const auto keep_last = [&](const std::vector<float>& block) {
    std::vector<float> kept;
    for (const SequenceRows& sequence : rows) {
      const std::span<const float> row = row_of(std::span(block), sequence.begin + sequence.count - 1, stream.hidden);
      kept.insert(kept.end(), row.begin(), row.end());
    }
    return kept;
  };
  last.prefix = keep_last(stream.prefix);
  for (const std::vector<float>& block : stream.stack) last.stack.push_back(keep_last(block));
  std::vector<float> result = impl_->logits(last, 0, last.tokens, 0);
  for (const SequenceRows& sequence : rows) sequence.state->position += sequence.count;
  return result;
}

}  // namespace trefoil
