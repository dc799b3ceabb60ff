#include "quantize/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "model/checkpoint_weights.h"
#include "quantize/activations.h"
#include "quantize/layer_metric.h"

namespace trefoil {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

ForwardOptions forward_options(const QuantizeOptions& options) {
  ForwardOptions forward;
  forward.numerics = options.numerics;
  forward.kda = KdaForm::kChunked;
  return forward;
}

class CalibratedWalk {
 public:
  explicit CalibratedWalk(const WalkInputs& inputs)
      : in_(inputs),
        model_(inputs.config, std::make_shared<CheckpointWeights>(inputs.source), forward_options(inputs.options),
               inputs.pool),
        stream_(model_, inputs.calibration.rows) {}

  std::vector<LayerRecord> run() {
    for (int64_t layer = 0; layer <= in_.layers.back().layer; ++layer) {
      const Stopwatch watch;
      stop_if_asked(in_.options);
      in_.progress.update("layers", layer, in_.layers.back().layer + 1);
      stream_.attention(layer);
      if (original_) original_->attention(layer);
      if (!in_.config.is_moe(layer)) {
        stream_.dense_ffn(layer);
        if (original_) original_->dense_ffn(layer);
      } else if (const MoeLayer* quantized = find(layer)) {
        LayerRecord record = quantize(*quantized);
        record.seconds = watch.seconds();
        records_.push_back(std::move(record));
      } else {
        const MoeInput input = stream_.moe_input(layer);
        stream_.moe_finish(layer, model_.expert_sum(layer, input.latent, input.routing));
      }
    }
    return std::move(records_);
  }

 private:
  const MoeLayer* find(int64_t layer) const {
    const auto at =
        std::find_if(in_.layers.begin(), in_.layers.end(), [&](const MoeLayer& moe) { return moe.layer == layer; });
    return at == in_.layers.end() ? nullptr : &*at;
  }

  LayerRecord quantize(const MoeLayer& moe) {
    const int64_t layer = moe.layer;
    const int64_t width = in_.config.routed_expert_hidden_size;
    const bool is_trefoil = in_.options.recipe == QuantizeRecipe::kTrefoil;
    const bool has_target = is_trefoil && in_.options.tuning.target_alpha > 0;
    const MoeInput input = stream_.moe_input(layer);
    std::vector<ExpertTokens> tokens = tokens_by_expert(input.routing, in_.config.num_experts);
    note_missing_tokens(layer, tokens);

    // What the layer's own experts make of the quantized stream, and of the original one.
    std::vector<float> expert_sum, original_sum, shared;
    MoeInput original_input;
    const bool streams_split_here = has_target && !original_;
    if (is_trefoil && (in_.options.tuning.gate_weighting || streams_split_here)) {
      expert_sum = model_.expert_sum(layer, input.latent, input.routing);
    }
    if (is_trefoil && in_.options.tuning.gate_weighting)
      weigh_by_effect(tokens, expert_sum, width, in_.config.rms_norm_eps);
    if (is_trefoil) shared = shared_hessian(input.latent, width, in_.pool);
    if (streams_split_here) {
      original_.emplace(stream_);
      original_input = input;
      original_sum = std::move(expert_sum);
    } else if (has_target) {
      original_input = original_->moe_input(layer);
      original_sum = model_.expert_sum(layer, original_input.latent, original_input.routing);
    }

    std::optional<OutputMetric> w2_metric;
    if (is_trefoil && in_.options.tuning.output_metric)
      w2_metric = w2_output_metric(CheckpointWeights(in_.source), in_.config, layer);
    const LayerInputs inputs{in_.source.get(), &in_.config,           &in_.options, layer,
                             input.latent,     original_input.latent, shared,       w2_metric ? &*w2_metric : nullptr};
    LayerResult result = quantize_layer(inputs, moe, tokens, in_.pool, in_.writer, in_.progress);
    stream_.moe_finish(layer, result.expert_sum);
    if (original_) original_->moe_finish(layer, original_sum);
    in_.writer.layer_done(layer);
    return std::move(result.record);
  }

  void note_missing_tokens(int64_t layer, const std::vector<ExpertTokens>& tokens) {
    const auto missing =
        std::count_if(tokens.begin(), tokens.end(), [](const ExpertTokens& expert) { return expert.count() == 0; });
    if (missing == 0) return;
    in_.progress.note(
        fmt::format("layer {}: {} of {} experts see no calibration token", layer, missing, tokens.size()));
  }

  const WalkInputs& in_;
  Model model_;
  ActivationStream stream_;
  std::optional<ActivationStream> original_;
  std::vector<LayerRecord> records_;
};

std::vector<LayerRecord> walk_weights_only(const WalkInputs& in) {
  std::vector<LayerRecord> records;
  for (const MoeLayer& moe : in.layers) {
    const Stopwatch watch;
    const LayerInputs inputs{in.source.get(), &in.config, &in.options, moe.layer, {}, {}, {}, nullptr};
    const std::vector<ExpertTokens> no_tokens(moe.experts.size());
    LayerRecord record = quantize_layer(inputs, moe, no_tokens, in.pool, in.writer, in.progress).record;
    in.writer.layer_done(moe.layer);
    record.seconds = watch.seconds();
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace

std::vector<LayerRecord> walk(const WalkInputs& inputs) {
  if (inputs.options.recipe == QuantizeRecipe::kRtn) return walk_weights_only(inputs);
  return CalibratedWalk(inputs).run();
}

}  // namespace trefoil
