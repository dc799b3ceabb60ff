// The reference against itself with one thing changed: what a difference between models has to exceed to mean anything.
#pragma once

#include <string>
#include <vector>

#include "eval/compare.h"
#include "eval/loaded_model.h"
#include "eval/model_logits.h"

namespace trefoil {

struct NoiseVariant {
  std::string name;
  std::string varied;
  ForwardOptions forward;
  SplitOptions split;
};

// What is varied, given how the judged run is done. A grouping that would change nothing is not in the list.
std::vector<NoiseVariant> noise_variants(const ForwardOptions& base, const CompareSettings& settings, int64_t num_rows,
                                         int64_t longest_row);

std::vector<NoiseSummary> measure_noise_floor(const EvalText& text, const LoadedModel& reference,
                                              const ForwardOptions& base, const CompareSettings& settings,
                                              ThreadPool& pool, ProgressSink& progress);

}  // namespace trefoil
