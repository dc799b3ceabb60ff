// What a job will do, step by step, with the work of each: known before it begins, kept in its folder for who watches,
// and what the time that is left is estimated by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quantize/walk_steps.h"

namespace trefoil {

struct PlannedStep {
  std::string step;   // "L003.experts", as in its units' names
  std::string title;  // "layer 3 of 0..92: experts"
  StepKind kind = StepKind::kEmbedding;
  int64_t layer = -1;  // -1: of none
  int64_t units = 0;
  int64_t tokens = 0;  // of calibration that the whole step takes; 0: it reads no text
  double gflop = 0;  // multiplications and additions of the whole step, by docs/quantization.md, "Cost"; 0: not counted
};

struct JobPlan {
  std::vector<PlannedStep> steps;
  uint64_t budget_bytes = 0;
  uint64_t memory_bytes = 0;   // resident at most
  uint64_t scratch_bytes = 0;  // of activations at most
};

// What the steps of a job follow from.
struct JobShape {
  const Checkpoint& source;
  const ModelConfig& config;
  const QuantizeOptions& options;
  const std::vector<MoeLayer>& layers;  // to quantize
  WorkGrain grain;
  int64_t rows = 0;        // of calibration
  int64_t row_length = 0;  // tokens
  int64_t shards = 0;      // of the output
};
std::vector<PlannedStep> plan_steps(const JobShape& shape);

std::string to_json(const JobPlan& plan);
// Error(kCorrupt) for text that to_json() did not write; `file` is for its message.
JobPlan parse_job_plan(const std::string& text, const std::string& file);

}  // namespace trefoil
