#include "quantize/report_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"

namespace trefoil {
namespace {

std::string count(int64_t value) {
  return format_count(static_cast<uint64_t>(value));
}

// " (of 512 asked for)" where the text filled fewer.
std::string asked_for(const QuantizeReport& report) {
  const int64_t asked = report.options.num_calibration_samples;
  const bool is_short = static_cast<int64_t>(report.calibration.rows.size()) < asked && !report.calibration.frozen;
  return is_short ? fmt::format(" (of {} asked for)", count(asked)) : "";
}

}  // namespace

std::vector<ReportFact> setting_facts(const QuantizeReport& report) {
  const QuantizeSummary summary = summarize(report);
  const QuantizeOptions& options = report.options;
  const bool dense = options.layout == QuantizeOptions::Layout::kDense;
  std::vector<ReportFact> facts = {
      {"source", report.source.folder},
      {"recipe", fmt::format("{}, trefoil {}", to_string(options.recipe), report.environment.version)},
      {"routed experts", fmt::format("int{} symmetric, group {}, BF16 scales, {:.3f} bits per weight", options.num_bits,
                                     options.group_size, summary.bits_per_weight)},
      {"layout", dense ? "pack-quantized, dense (compressed-tensors 0.18 and later)"
                       : "pack-quantized, padded (compressed-tensors 0.17.x)"},
      {"everything else", "byte-identical to the source"},
      {"tensor bytes", fmt::format("{}, source {}", format_gb(summary.output_bytes), format_gb(summary.source_bytes))}};
  if (report.is_calibrated()) {
    facts.push_back(
        {"calibration", fmt::format("{} rows{} of {} tokens, routed tokens only", count(summary.calibration_rows),
                                    asked_for(report), count(report.calibration.row_length))});
  }
  return facts;
}

std::vector<ReportFact> result_facts(const QuantizeReport& report) {
  const QuantizeSummary summary = summarize(report);
  std::vector<ReportFact> facts = {
      {"matrices", fmt::format("{} in {} layers", count(summary.matrices), count(summary.layers))},
      {"mean relative error w1 / w2 / w3", fmt::format("{:.4f} / {:.4f} / {:.4f}", summary.relative_error_w1,
                                                       summary.relative_error_w2, summary.relative_error_w3)}};
  if (report.is_calibrated()) {
    facts.push_back({"experts with fewer tokens than input columns", count(summary.thin_experts)});
    facts.push_back({"experts without tokens", count(summary.experts_without_tokens)});
  }
  facts.push_back({"fallbacks", count(summary.fallbacks)});
  return facts;
}

std::vector<PlannedFact> resource_facts(const QuantizeReport& report) {
  std::vector<PlannedFact> facts = {
      {"memory, at the worst moment", format_gib(report.planned_memory_bytes), format_gib(report.peak_memory_bytes)}};
  if (report.is_calibrated()) {
    facts.push_back({"scratch on disk, at the worst moment", format_gb(report.planned_scratch_bytes),
                     format_gb(report.peak_scratch_bytes)});
  }
  return facts;
}

std::map<std::string, int64_t> fallbacks_by_reason(const QuantizeReport& report) {
  std::map<std::string, int64_t> by_reason;
  for (const LayerRecord& layer : report.layers) {
    for (const MatrixRecord& matrix : layer.matrices) {
      if (!matrix.fallback.empty()) ++by_reason[matrix.fallback];
    }
  }
  return by_reason;
}

ExpertTimes all_expert_times(const QuantizeReport& report) {
  ExpertTimes all;
  for (const LayerRecord& layer : report.layers) all += layer.times;
  return all;
}

double step_seconds(const QuantizeReport& report, StepKind kind, std::optional<int64_t> layer) {
  double seconds = 0;
  for (const StepRecord& step : report.steps) {
    if (step.kind == kind && (!layer || step.layer == *layer)) seconds += step.seconds;
  }
  return seconds;
}

double layer_seconds(const QuantizeReport& report, int64_t layer) {
  double seconds = 0;
  for (const StepKind kind : kStepKinds) seconds += step_seconds(report, kind, layer);
  return seconds;
}

TokenSpread token_spread(const LayerRecord& layer) {
  std::vector<int64_t> tokens = layer.tokens_per_expert;
  if (tokens.empty()) return {};
  std::sort(tokens.begin(), tokens.end());
  return {tokens.front(), tokens[tokens.size() / 2], tokens.back()};
}

}  // namespace trefoil
