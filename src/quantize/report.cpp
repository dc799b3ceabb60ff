#include "quantize/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "quantize/calibration_json.h"
#include "quantize/report_facts.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

bool is_container(const Json& value) {
  return value.is_object() || value.is_array();
}

bool is_plain(const Json& value) {
  return std::none_of(value.begin(), value.end(), [](const Json& element) { return is_container(element); });
}

// Indented by one space a level, except that a container without containers takes one line.
void print(const Json& value, int depth, std::string& out) {
  if (!is_container(value) || is_plain(value)) {
    out += value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  const std::string indent(static_cast<size_t>(depth) + 1, ' ');
  const char* separator = "\n";
  out += value.is_object() ? '{' : '[';
  for (auto element = value.begin(); element != value.end(); ++element) {
    out += separator + indent;
    if (value.is_object()) out += Json(element.key()).dump(-1, ' ', false, Json::error_handler_t::replace) + ": ";
    print(*element, depth + 1, out);
    separator = ",\n";
  }
  out += "\n" + std::string(static_cast<size_t>(depth), ' ') + (value.is_object() ? '}' : ']');
}

const char* to_string(QuantizeOptions::Layout layout) {
  return layout == QuantizeOptions::Layout::kDense ? "dense" : "padded";
}
const char* to_string(QuantizeOptions::Scales scales) {
  return scales == QuantizeOptions::Scales::kAny ? "any" : "positive";
}
const char* to_string(Numerics numerics) {
  return numerics == Numerics::kBf16 ? "bf16" : "f32";
}

Json settings_json(const QuantizeOptions& options) {
  Json json = {{"recipe", to_string(options.recipe)},
               {"num_bits", options.num_bits},
               {"group_size", options.group_size},
               {"layout", to_string(options.layout)},
               {"seed", options.seed}};
  if (options.recipe == QuantizeRecipe::kRtn) return json;
  json["dampening_frac"] = options.dampening_frac;
  json["actorder"] = "static";
  json["numerics"] = to_string(options.numerics);
  json["num_calibration_samples"] = options.num_calibration_samples;
  json["max_seq_length"] = options.max_seq_length;
  if (options.recipe == QuantizeRecipe::kStock) json["stock_zero_mask"] = options.stock_zero_mask;
  if (options.recipe == QuantizeRecipe::kTrefoil) {
    const TrefoilTuning& tuning = options.tuning;
    json["scales"] = to_string(options.scales);
    json["shrinkage"] = tuning.shrinkage;
    json["target_alpha"] = tuning.target_alpha;
    json["refine_rounds"] = tuning.refine_rounds;
    json["gate_weighting"] = tuning.gate_weighting;
    json["output_metric"] = tuning.output_metric;
    json["w2_sequential"] = tuning.w2_sequential;
  }
  return json;
}

Json environment_json(const EnvironmentRecord& environment) {
  return {{"trefoil", environment.version},
          {"compiler", environment.compiler},
          {"blas", environment.blas},
          {"isa", environment.isa},
          {"threads", environment.threads}};
}

Json source_json(const SourceRecord& source) {
  Json shards = Json::array();
  for (const ShardRecord& shard : source.shards) {
    shards.push_back({{"file", shard.file}, {"bytes", shard.bytes}, {"header_sha256", shard.header_sha256}});
  }
  return {{"folder", source.folder},
          {"tensor_bytes", source.tensor_bytes},
          {"config_sha256", source.config_sha256},
          {"index_sha256", source.index_sha256},
          {"shards", std::move(shards)}};
}

Json matrix_json(const MatrixRecord& matrix) {
  Json json = {{"expert", matrix.expert},
               {"matrix", to_string(matrix.part)},
               {"tokens", matrix.tokens},
               {"n_eff", matrix.n_eff},
               {"loss", matrix.loss},
               {"relative_error", matrix.relative_error},
               {"weight_error", matrix.weight_error},
               {"shrinkage", matrix.shrinkage},
               {"damping", matrix.damping},
               {"dead_columns", matrix.dead_columns},
               {"rounds_kept", matrix.rounds_kept},
               {"negative_scales", matrix.negative_scales}};
  if (matrix.output_error > 0) json["output_error"] = matrix.output_error;
  if (!matrix.fallback.empty()) json["fallback"] = matrix.fallback;
  return json;
}

// Nothing for phases that took no time.
Json phases_json(const PhaseTimes& times) {
  Json json = Json::object();
  for (const Phase phase : kPhases) {
    const PhaseCost& cost = times[phase];
    if (cost.seconds > 0) json[to_string(phase)] = {{"cpu_seconds", cost.seconds}, {"gflop", cost.flops / 1e9}};
  }
  return json;
}

Json times_json(const ExpertTimes& times) {
  return {{"w1+w3", phases_json(times.gate_up)}, {"w2", phases_json(times.down)}};
}

// Seconds by kind of step; nothing for those that took none.
Json steps_json(const QuantizeReport& report, std::optional<int64_t> layer = {}) {
  Json json = Json::object();
  for (const StepKind kind : kStepKinds) {
    if (const double seconds = step_seconds(report, kind, layer); seconds > 0) json[to_string(kind)] = seconds;
  }
  return json;
}

// Nothing for rtn, which reads no text.
void add_tokens(const LayerRecord& layer, const QuantizeReport& report, Json& json) {
  if (!report.is_calibrated()) return;
  const TokenSpread spread = token_spread(layer);
  json["tokens"] = layer.tokens;
  json["tokens_per_expert_min"] = spread.least;
  json["tokens_per_expert_median"] = spread.median;
  json["tokens_per_expert_max"] = spread.most;
  json["thin_experts"] = layer.thin_experts(report.latent);
  json["experts_without_tokens"] = layer.experts_without_tokens();
  json["tokens_per_expert"] = layer.tokens_per_expert;
}

Json layer_json(const LayerRecord& layer, const QuantizeReport& report) {
  Json matrices = Json::array();
  for (const MatrixRecord& matrix : layer.matrices) matrices.push_back(matrix_json(matrix));
  Json json = {{"layer", layer.layer},
               {"seconds", layer_seconds(report, layer.layer)},
               {"seconds_by_step", steps_json(report, layer.layer)},
               {"phases", times_json(layer.times)}};
  add_tokens(layer, report, json);
  json["matrices"] = std::move(matrices);
  return json;
}

Json resources_json(const QuantizeReport& report) {
  return {{"planned_memory_bytes", report.planned_memory_bytes},
          {"peak_memory_bytes", report.peak_memory_bytes},
          {"planned_scratch_bytes", report.planned_scratch_bytes},
          {"peak_scratch_bytes", report.peak_scratch_bytes}};
}

Json totals_json(const QuantizeReport& report, const QuantizeSummary& summary) {
  Json json = {
      {"layers", summary.layers},
      {"matrices", summary.matrices},
      {"mean_relative_error",
       {{"w1", summary.relative_error_w1}, {"w2", summary.relative_error_w2}, {"w3", summary.relative_error_w3}}}};
  if (report.is_calibrated()) {
    json["thin_experts"] = summary.thin_experts;
    json["experts_without_tokens"] = summary.experts_without_tokens;
  }
  json.update({{"fallbacks", summary.fallbacks},
               {"fallbacks_by_reason", fallbacks_by_reason(report)},
               {"source_tensor_bytes", summary.source_bytes},
               {"output_tensor_bytes", summary.output_bytes},
               {"bits_per_weight", summary.bits_per_weight},
               {"seconds", summary.seconds},
               {"seconds_by_step", steps_json(report)},
               {"phases", times_json(all_expert_times(report))}});
  return json;
}

}  // namespace

const char* to_string(QuantizeRecipe recipe) {
  switch (recipe) {
    case QuantizeRecipe::kTrefoil:
      return "trefoil";
    case QuantizeRecipe::kStock:
      return "stock";
    case QuantizeRecipe::kRtn:
      return "rtn";
  }
  return "?";
}

int64_t LayerRecord::thin_experts(int64_t columns) const {
  return std::count_if(tokens_per_expert.begin(), tokens_per_expert.end(), [&](int64_t n) { return n < columns; });
}

int64_t LayerRecord::experts_without_tokens() const {
  return std::count(tokens_per_expert.begin(), tokens_per_expert.end(), 0);
}

std::vector<ThinExpert> thinnest_experts(const std::vector<LayerRecord>& layers, int64_t columns, size_t limit) {
  std::vector<ThinExpert> thin;
  for (const LayerRecord& layer : layers) {
    for (size_t expert = 0; expert < layer.tokens_per_expert.size(); ++expert) {
      const int64_t tokens = layer.tokens_per_expert[expert];
      if (tokens < columns) thin.push_back({tokens, layer.layer, static_cast<int64_t>(expert)});
    }
  }
  std::sort(thin.begin(), thin.end());
  if (thin.size() > limit) thin.resize(limit);
  return thin;
}

QuantizeSummary summarize(const QuantizeReport& report) {
  QuantizeSummary summary;
  summary.source_bytes = report.source.tensor_bytes;
  summary.output_bytes = report.output_tensor_bytes;
  summary.bits_per_weight = report.bits_per_weight;
  summary.calibration_rows = static_cast<int64_t>(report.calibration.rows.size());
  summary.calibration_tokens = report.calibration.num_tokens();
  summary.layers = static_cast<int64_t>(report.layers.size());
  summary.seconds = report.seconds;
  std::array<double, 3> error{};
  std::array<int64_t, 3> count{};
  for (const LayerRecord& layer : report.layers) {
    summary.matrices += static_cast<int64_t>(layer.matrices.size());
    summary.thin_experts += layer.thin_experts(report.latent);
    summary.experts_without_tokens += layer.experts_without_tokens();
    for (const MatrixRecord& matrix : layer.matrices) {
      const auto part = static_cast<size_t>(matrix.part);
      error[part] += matrix.relative_error;
      ++count[part];
      if (!matrix.fallback.empty()) ++summary.fallbacks;
    }
  }
  auto mean = [&](size_t part) { return count[part] > 0 ? error[part] / static_cast<double>(count[part]) : 0.0; };
  summary.relative_error_w1 = mean(0);
  summary.relative_error_w2 = mean(1);
  summary.relative_error_w3 = mean(2);
  return summary;
}

std::string report_json(const QuantizeReport& report) {
  Json layers = Json::array();
  for (const LayerRecord& layer : report.layers) layers.push_back(layer_json(layer, report));
  Json json = {{"what", "trefoil quantization report"},
               {"report_version", 1},
               {"partial", report.options.layers.has_value()},
               {"environment", environment_json(report.environment)},
               {"settings", settings_json(report.options)},
               {"totals", totals_json(report, summarize(report))},
               {"source", source_json(report.source)},
               {"resources", resources_json(report)},
               {"layers", std::move(layers)}};
  if (report.is_calibrated()) {
    json["calibration"] = calibration_json(report.calibration);
    json["calibration"]["token_ids"] = report.calibration.rows;
  }
  std::string text;
  print(json, 0, text);
  return text + "\n";
}

}  // namespace trefoil
