#include "quantize/job_plan.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "quantize/unit_names.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

double d(int64_t value) {
  return static_cast<double>(value);
}

// Weights of a layer outside its routed experts that every token is multiplied with.
struct TrunkWeights {
  double before_experts = 0;  // attention, router, down projection; a dense layer's MLP
  double after_experts = 0;   // shared experts, up projection
};

// The layer in "...layers.3.self_attn...", or -1.
int64_t layer_of(std::string_view tensor) {
  constexpr std::string_view kLayers = ".layers.";
  const size_t at = tensor.find(kLayers);
  int64_t layer = -1;
  if (at == std::string_view::npos) return layer;
  const std::string_view rest = tensor.substr(at + kLayers.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  return layer;
}

std::vector<TrunkWeights> trunk_weights(const Checkpoint& source, const ModelConfig& config) {
  std::vector<TrunkWeights> layers(static_cast<size_t>(config.num_hidden_layers));
  for (const TensorRef& tensor : source.tensors()) {
    const std::string& name = tensor.info.name;
    const int64_t layer = layer_of(name);
    if (tensor.info.shape.size() != 2 || layer < 0 || layer >= config.num_hidden_layers) continue;
    if (name.find(".experts.") != std::string::npos || name.find("vision") != std::string::npos) continue;
    const bool is_after =
        name.find("shared_experts") != std::string::npos || name.find("routed_expert_up_proj") != std::string::npos;
    TrunkWeights& weights = layers[static_cast<size_t>(layer)];
    (is_after ? weights.after_experts : weights.before_experts) += d(tensor.info.shape[0]) * d(tensor.info.shape[1]);
  }
  return layers;
}

// Multiplications and additions of each kind of step; docs/quantization.md, "Cost".
class StepWork {
 public:
  explicit StepWork(const JobShape& shape)
      : options_(shape.options),
        trunk_(trunk_weights(shape.source, shape.config)),
        tokens_(d(shape.rows * shape.row_length)),
        assignments_(tokens_ * d(shape.config.num_experts_per_token)),
        experts_(d(shape.config.num_experts)),
        latent_(d(shape.config.routed_expert_hidden_size)),
        inner_(d(shape.config.moe_intermediate_size)) {}

  double flop(const WalkStep& step) const {
    const TrunkWeights& trunk = trunk_[static_cast<size_t>(step.layer)];
    switch (step.kind) {
      case StepKind::kAttention:
        return 2 * tokens_ * trunk.before_experts;
      case StepKind::kExpertPass:
        return expert_pass() + (step.pass.finishes_to ? 2 * tokens_ * trunk.after_experts : 0);
      case StepKind::kSharedHessian:
        return tokens_ * latent_ * latent_;
      case StepKind::kExperts:
        return options_.recipe == QuantizeRecipe::kRtn ? 0 : solving();
      case StepKind::kEmbedding:
      case StepKind::kCopying:
        return 0;
    }
    return 0;
  }

 private:
  double expert_pass() const { return 2 * assignments_ * 3 * latent_ * inner_; }

  double solving() const {
    const double squares = latent_ * latent_ + inner_ * inner_;
    const double cubes = latent_ * latent_ * latent_ + inner_ * inner_ * inner_;
    const double sweeps = experts_ * (2 * inner_ * latent_ * latent_ + latent_ * inner_ * inner_);
    // w1 and w3 for what w2 reads, a Hessian by symmetric updates for each input, factors, column sweeps.
    double flop = expert_pass() * 2 / 3 + assignments_ * squares + experts_ * cubes / 3 + sweeps;
    if (options_.recipe == QuantizeRecipe::kStock) return flop;
    if (has_original_stream(options_)) flop += expert_pass() * 2 / 3 + 2 * assignments_ * squares + 4 * sweeps;
    const double rounds = options_.tuning.refine_rounds;
    flop += rounds * 2 * sweeps;
    if (options_.tuning.output_metric) flop += experts_ * 2 * latent_ * inner_ * (2 * latent_ + inner_);
    return flop;
  }

  const QuantizeOptions& options_;
  std::vector<TrunkWeights> trunk_;  // by layer
  double tokens_, assignments_, experts_, latent_, inner_;
};

int64_t units_of(const WalkStep& step, const JobShape& shape) {
  switch (step.kind) {
    case StepKind::kEmbedding:
    case StepKind::kAttention:
      return ceil_div(shape.rows, shape.grain.unit_rows);
    case StepKind::kExpertPass:
      return ceil_div(shape.rows, shape.grain.pass_rows);
    case StepKind::kSharedHessian:
      return 1;
    case StepKind::kExperts:
      return ceil_div(shape.config.num_experts, shape.grain.experts_per_unit);
    case StepKind::kCopying:
      return shape.shards;
  }
  return 0;
}

Json step_json(const PlannedStep& step) {
  return {{"step", step.step},   {"title", step.title},   {"kind", to_string(step.kind)}, {"layer", step.layer},
          {"units", step.units}, {"tokens", step.tokens}, {"gflop", step.gflop}};
}

PlannedStep step_of_json(const Json& json, const std::string& file) {
  const auto name = json.at("kind").get<std::string>();
  const std::optional<StepKind> kind = parse_step_kind(name);
  if (!kind) fail(ErrorCode::kCorrupt, "{}: '{}' is no kind of step", file, name);
  PlannedStep step{json.at("step"),  json.at("title"),  *kind,           json.at("layer"),
                   json.at("units"), json.at("tokens"), json.at("gflop")};
  if (step.units < 0 || step.tokens < 0 || !(step.gflop >= 0))
    fail(ErrorCode::kCorrupt, "{}: step {} has a negative number", file, step.step);
  return step;
}

}  // namespace

std::vector<PlannedStep> plan_steps(const JobShape& shape) {
  const StepWork work(shape);
  const int64_t last_layer = shape.layers.back().layer;
  std::vector<PlannedStep> steps;
  for (const WalkStep& step : walk_steps(shape.config, shape.options, shape.layers)) {
    steps.push_back({step_name(step.layer, step.name), stage_of(step, last_layer), step.kind, step.layer,
                     units_of(step, shape), shape.rows * shape.row_length, work.flop(step) * 1e-9});
  }
  steps.push_back({std::string(kCopyStep), std::string(kCopyTitle), StepKind::kCopying, -1, shape.shards, 0, 0});
  return steps;
}

std::string to_json(const JobPlan& plan) {
  Json steps = Json::array();
  for (const PlannedStep& step : plan.steps) steps.push_back(step_json(step));
  return Json{{"budget_bytes", plan.budget_bytes},
              {"memory_bytes", plan.memory_bytes},
              {"scratch_bytes", plan.scratch_bytes},
              {"steps", std::move(steps)}}
      .dump();
}

JobPlan parse_job_plan(const std::string& text, const std::string& file) {
  try {
    const Json json = Json::parse(text);
    JobPlan plan;
    plan.budget_bytes = json.at("budget_bytes").get<uint64_t>();
    plan.memory_bytes = json.at("memory_bytes").get<uint64_t>();
    plan.scratch_bytes = json.at("scratch_bytes").get<uint64_t>();
    for (const Json& step : json.at("steps")) plan.steps.push_back(step_of_json(step, file));
    return plan;
  } catch (const nlohmann::json::exception& wrong) {
    fail(ErrorCode::kCorrupt, "{}: {}", file, wrong.what());
  }
}

}  // namespace trefoil
