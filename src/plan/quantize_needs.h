// What quantizing a model takes: memory, disk, arithmetic, each as a formula of the model's dimensions and the
// calibration text. The job itself cuts its work by the same formulas (src/quantize/job.cpp), so what `plan` says is what
// the job does. docs/quantization.md, "Cost".
#pragma once

#include <vector>

#include "plan/model_source.h"
#include "trefoil/plan.h"

namespace trefoil {

struct QuantizeNeeds {
  int64_t rows = 0;        // of calibration
  int64_t row_length = 0;  // tokens
  int64_t threads = 1;
  bool is_calibrated = true;        // false: kRtn
  bool is_trefoil = true;           // false: kStock
  bool has_original_stream = true;  // the mismatch target
  bool stores_bf16 = true;          // activations on disk
  uint64_t budget_bytes = 0;        // most memory; 0: no limit
  uint64_t num_tensors = 0;         // of the source: the index in memory
  int64_t end_layer = -1;           // layers [0, end_layer) are walked through; -1: all
  int64_t processes = 1;            // known to share the job: units of rows are cut so that each gets some

  int64_t tokens() const { return rows * row_length; }
};

// How the work is cut so that it fits the budget, and what it then takes.
struct QuantizeCut {
  int64_t unit_rows = 1;         // rows of a unit of attention
  int64_t pass_rows = 1;         // rows that go through all experts at once, a multiple of unit_rows
  int64_t experts_at_once = 1;   // at most one a thread, each of another unit
  int64_t experts_per_unit = 1;  // one after the other

  uint64_t base_bytes = 0;       // program, headers, small weights, token ids
  uint64_t attention_bytes = 0;  // each on top of the base, one at a time
  uint64_t pass_bytes = 0;
  uint64_t experts_bytes = 0;
  uint64_t peak_bytes() const;
};

// What the finest cut takes, one expert and one row at a time.
uint64_t least_budget(const ModelConfig& config, const QuantizeNeeds& needs);

// Error(kOverBudget) saying what the least budget is when even the finest cut does not fit.
QuantizeCut cut_quantize(const ModelConfig& config, const QuantizeNeeds& needs);

// The peak of work that was cut so, with one expert at once: what an interrupted run needs at least to go on.
uint64_t cut_bytes(const ModelConfig& config, const QuantizeNeeds& needs, int64_t unit_rows, int64_t pass_rows);

// Bytes of an expert in work, beside its share of the base.
uint64_t expert_bytes(const ModelConfig& config, const QuantizeNeeds& needs);

// Resident at the worst moment.
std::vector<PlanLine> quantize_memory(const ModelConfig& config, const QuantizeNeeds& needs);

// The activation store at its largest: src/quantize/activation_store.h says which files there are.
uint64_t scratch_bytes(const ModelConfig& config, const QuantizeNeeds& needs);

// Read from and written to the activation store over the whole job.
uint64_t scratch_traffic_bytes(const ModelConfig& config, const QuantizeNeeds& needs);

// Multiplications and additions, counted apart.
std::vector<ComputeEstimate> quantize_compute(const ModelConfig& config, const QuantizeNeeds& needs,
                                              uint64_t dense_active_parameters);

}  // namespace trefoil
