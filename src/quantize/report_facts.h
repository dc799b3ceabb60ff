// What all forms of a quantization report say, as plain text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quantize/report.h"

namespace trefoil {

struct ReportFact {
  std::string name;
  std::string value;
};
std::vector<ReportFact> setting_facts(const QuantizeReport& report);
std::vector<ReportFact> result_facts(const QuantizeReport& report);

struct PlannedFact {
  std::string name;
  std::string planned;
  std::string used;
};
std::vector<PlannedFact> resource_facts(const QuantizeReport& report);

// Matrices by MatrixRecord::fallback, those without one left out.
std::map<std::string, int64_t> fallbacks_by_reason(const QuantizeReport& report);

ExpertTimes all_expert_times(const QuantizeReport& report);

// Of all steps of a kind, in all layers or one.
double step_seconds(const QuantizeReport& report, StepKind kind, std::optional<int64_t> layer = {});
double layer_seconds(const QuantizeReport& report, int64_t layer);  // of all its steps

// Calibration tokens of a layer's experts.
struct TokenSpread {
  int64_t least = 0, median = 0, most = 0;
};
TokenSpread token_spread(const LayerRecord& layer);

}  // namespace trefoil
