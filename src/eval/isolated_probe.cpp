#include "eval/isolated_probe.h"

#include <algorithm>

#include "base/check.h"
#include "eval/probe.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "model/linear.h"

namespace trefoil {
namespace {

// The latents of the tokens that use each expert, in token order.
std::vector<std::vector<float>> gather_by_expert(const LayerStep& step, int64_t num_experts, int64_t width) {
  std::vector<std::vector<float>> gathered(static_cast<size_t>(num_experts));
  for (int64_t t = 0; t < step.routing.tokens; ++t) {
    const std::span<const float> z = row_of(std::span<const float>(step.latent), t, width);
    for (int64_t k = 0; k < step.routing.top_k; ++k) {
      const int32_t expert = step.routing.expert[static_cast<size_t>(t * step.routing.top_k + k)];
      std::vector<float>& rows = gathered[static_cast<size_t>(expert)];
      rows.insert(rows.end(), z.begin(), z.end());
    }
  }
  return gathered;
}

}  // namespace

IsolatedProbe::IsolatedProbe(const LoadedModel& reference, const LoadedModel& candidate, const Model& candidate_model,
                             ThreadPool& pool)
    : reference_(reference), candidate_(candidate), candidate_model_(candidate_model), pool_(pool) {
  const size_t experts = static_cast<size_t>(reference.config.num_experts);
  for (const int64_t layer : moe_layers(reference.config)) {
    layers_.emplace_back();
    layers_.back().layer = layer;
    layers_.back().expert_out.resize(experts);
    layers_.back().load.resize(experts, 0);
  }
}

void IsolatedProbe::add(int64_t layer, const LayerStep& step) {
  const auto found = std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return l.layer == layer; });
  TREFOIL_CHECK(found != layers_.end());
  const int64_t width = reference_.config.routed_expert_hidden_size;
  const std::vector<std::vector<float>> gathered = gather_by_expert(step, reference_.config.num_experts, width);
  for (size_t expert = 0; expert < gathered.size(); ++expert) {
    const int64_t tokens = static_cast<int64_t>(gathered[expert].size()) / width;
    if (tokens > 0) add_expert(*found, static_cast<int64_t>(expert), gathered[expert], tokens);
  }
  add_sums(*found, step);
}

std::vector<float> IsolatedProbe::apply(const LoadedModel& model, int64_t layer, int64_t expert, const char* kind,
                                        std::span<const float> x, int64_t tokens) const {
  const int64_t latent = model.config.routed_expert_hidden_size, inner = model.config.moe_intermediate_size;
  const bool down = kind[1] == '2';
  const std::unique_ptr<LinearWeight> weight =
      model.weights->linear(expert_module(layer, expert, kind), down ? latent : inner, down ? inner : latent);
  const Runtime runtime{rounding_of(candidate_model_.options().numerics), &pool_};
  return apply_linear(runtime, *weight, x, tokens);
}

void IsolatedProbe::add_expert(Layer& layer, int64_t expert, std::span<const float> z, int64_t tokens) {
  const ModelConfig& config = reference_.config;
  const int64_t inner = config.moe_intermediate_size;
  const Situ unit{config.activation_situ_beta, config.activation_situ_linear_beta};
  const Rounding rounding = rounding_of(candidate_model_.options().numerics);
  std::vector<float> gate[2], up[2], out[2];
  const LoadedModel* models[2] = {&reference_, &candidate_};
  for (size_t m = 0; m < 2; ++m) {
    gate[m] = apply(*models[m], layer.layer, expert, "w1", z, tokens);
    up[m] = apply(*models[m], layer.layer, expert, "w3", z, tokens);
  }
  add_rows(gate[0], gate[1], inner, &layer.w1);
  add_rows(up[0], up[1], inner, &layer.w3);
  for (size_t m = 0; m < 2; ++m) {
    situ(unit, gate[m], up[m], rounding, gate[m]);  // gate now holds the hidden activations
    out[m] = apply(*models[m], layer.layer, expert, "w2", gate[m], tokens);
  }
  add_rows(gate[0], gate[1], inner, &layer.hidden);
  add_rows(out[0], out[1], config.routed_expert_hidden_size, &layer.expert_out[static_cast<size_t>(expert)]);
  layer.load[static_cast<size_t>(expert)] += tokens;
}

void IsolatedProbe::add_sums(Layer& layer, const LayerStep& step) {
  const ModelConfig& config = reference_.config;
  const int64_t width = config.routed_expert_hidden_size;
  std::vector<float> u[2] = {step.expert_sum, candidate_model_.expert_sum(layer.layer, step.latent, step.routing)};
  add_rows(u[0], u[1], width, &layer.expert_sum);
  const std::vector<float> norm =
      reference_.weights->vector(moe_module(layer.layer, "routed_expert_norm.weight"), {width});
  const Rounding rounding = rounding_of(candidate_model_.options().numerics);
  for (std::vector<float>& block : u) {
    for (int64_t t = 0; t < step.routing.tokens; ++t) {
      const std::span<float> row = row_of(std::span(block), t, width);
      rms_norm(row, norm, static_cast<float>(config.rms_norm_eps), rounding, row);
    }
  }
  add_rows(u[0], u[1], width, &layer.normed_sum);
}

std::vector<IsolatedLayerProbe> IsolatedProbe::layers() const {
  std::vector<IsolatedLayerProbe> result;
  for (const Layer& layer : layers_) {
    ErrorCollector outputs;
    for (const ErrorCollector& expert : layer.expert_out) outputs.add(expert);
    result.push_back({layer.layer, layer.w1.spread(), layer.w3.spread(), layer.hidden.spread(), outputs.spread(),
                      layer.expert_sum.spread(), layer.normed_sum.spread()});
  }
  return result;
}

std::vector<LoadDecileProbe> IsolatedProbe::load_deciles() const {
  struct Expert {
    int64_t load;
    const ErrorCollector* errors;
  };
  std::vector<Expert> experts;
  for (const Layer& layer : layers_) {
    for (size_t e = 0; e < layer.load.size(); ++e) experts.push_back({layer.load[e], &layer.expert_out[e]});
  }
  std::stable_sort(experts.begin(), experts.end(), [](const Expert& a, const Expert& b) { return a.load < b.load; });
  std::vector<LoadDecileProbe> result;
  const int64_t count = static_cast<int64_t>(experts.size());
  for (int64_t decile = 0; decile < kLoadDeciles; ++decile) {
    LoadDecileProbe probe{decile, 0, 0, {}};
    ErrorCollector errors;
    for (int64_t i = decile * count / kLoadDeciles; i < (decile + 1) * count / kLoadDeciles; ++i) {
      ++probe.experts;
      probe.tokens += experts[static_cast<size_t>(i)].load;
      errors.add(*experts[static_cast<size_t>(i)].errors);
    }
    probe.expert_out = errors.spread();
    result.push_back(probe);
  }
  return result;
}

}  // namespace trefoil
