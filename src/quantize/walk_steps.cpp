#include "quantize/walk_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "quantize/unit_names.h"

namespace trefoil {
namespace {

char letter(Stream stream) {
  return stream == Stream::kQuantized ? 'q' : 'o';
}

class StepList {
 public:
  StepList(const ModelConfig& config, const QuantizeOptions& options, const std::vector<MoeLayer>& layers)
      : config_(config),
        options_(options),
        layers_(layers),
        has_original_(has_original_stream(options)),
        split_(split_layer_of(layers)),
        last_(layers.back().layer) {}

  std::vector<WalkStep> calibrated() {
    steps_.push_back({StepKind::kEmbedding, 0, "embed", "embedding", Stream::kQuantized, {}});
    for (int64_t layer = 0; layer <= last_; ++layer) {
      for (const Stream stream : streams_at(layer)) add_attention(layer, stream);
      if (!config_.is_moe(layer)) continue;
      is_quantized(layer) ? add_quantizing(layer) : add_unchanged(layer);
    }
    return std::move(steps_);
  }

  std::vector<WalkStep> weights_only() {
    for (const MoeLayer& moe : layers_) add_experts(moe.layer);
    return std::move(steps_);
  }

 private:
  std::vector<Stream> streams_at(int64_t layer) const {
    if (has_original_ && layer > split_) return {Stream::kQuantized, Stream::kOriginal};
    return {Stream::kQuantized};
  }

  bool is_quantized(int64_t layer) const {
    return std::any_of(layers_.begin(), layers_.end(), [&](const MoeLayer& moe) { return moe.layer == layer; });
  }

  void add_attention(int64_t layer, Stream stream) {
    steps_.push_back({StepKind::kAttention,
                      layer,
                      fmt::format("attend-{}", letter(stream)),
                      stream == Stream::kQuantized ? "attention" : "attention, original stream",
                      stream,
                      {}});
  }

  void add_pass(int64_t layer, Stream stream, const ExpertPass& pass, std::string title) {
    steps_.push_back({StepKind::kExpertPass, layer,
                      fmt::format("pass-{}{}", letter(stream), pass.quantized_experts ? "-quantized" : ""),
                      std::move(title), stream, pass});
  }

  void add_experts(int64_t layer) {
    steps_.push_back({StepKind::kExperts, layer, std::string(kExpertStep), "experts", Stream::kQuantized, {}});
  }

  void add_quantizing(int64_t layer) {
    const bool is_trefoil = options_.recipe == QuantizeRecipe::kTrefoil;
    const bool weighs = is_trefoil && options_.tuning.gate_weighting;
    const bool is_last = layer == last_, splits_here = has_original_ && layer == split_;
    const auto original_next = is_last ? std::nullopt : std::optional(Stream::kOriginal);
    if (weighs || (splits_here && !is_last)) {
      add_pass(layer, Stream::kQuantized, {false, weighs, splits_here ? original_next : std::nullopt},
               "the layer's own experts");
    }
    if (has_original_ && !splits_here && !is_last)
      add_pass(layer, Stream::kOriginal, {false, false, original_next}, "experts, original stream");
    if (is_trefoil)
      steps_.push_back({StepKind::kSharedHessian, layer, "shared", "shared Hessian", Stream::kQuantized, {}});
    add_experts(layer);
    if (!is_last) add_pass(layer, Stream::kQuantized, {true, false, Stream::kQuantized}, "quantized experts");
  }

  // A MoE layer that stays as it is.
  void add_unchanged(int64_t layer) {
    for (const Stream stream : streams_at(layer)) add_pass(layer, stream, {false, false, stream}, "experts");
  }

  const ModelConfig& config_;
  const QuantizeOptions& options_;
  const std::vector<MoeLayer>& layers_;
  bool has_original_;
  int64_t split_, last_;
  std::vector<WalkStep> steps_;
};

}  // namespace

const char* to_string(StepKind kind) {
  switch (kind) {
    case StepKind::kEmbedding:
      return "embedding";
    case StepKind::kAttention:
      return "attention";
    case StepKind::kExpertPass:
      return "expert_pass";
    case StepKind::kSharedHessian:
      return "shared_hessian";
    case StepKind::kExperts:
      return "experts";
    case StepKind::kCopying:
      return "copying";
  }
  return "?";
}

std::optional<StepKind> parse_step_kind(std::string_view name) {
  for (const StepKind kind : kStepKinds) {
    if (name == to_string(kind)) return kind;
  }
  return std::nullopt;
}

std::vector<WalkStep> walk_steps(const ModelConfig& config, const QuantizeOptions& options,
                                 const std::vector<MoeLayer>& layers) {
  StepList list(config, options, layers);
  return options.recipe == QuantizeRecipe::kRtn ? list.weights_only() : list.calibrated();
}

std::string stage_of(const WalkStep& step, int64_t last_layer) {
  if (step.kind == StepKind::kEmbedding) return step.title;
  return fmt::format("layer {} of 0..{}: {}", step.layer, last_layer, step.title);
}

bool has_original_stream(const QuantizeOptions& options) {
  return options.recipe == QuantizeRecipe::kTrefoil && options.tuning.target_alpha > 0;
}

int64_t split_layer_of(const std::vector<MoeLayer>& layers) {
  return layers.front().layer;
}

}  // namespace trefoil
