// What quantizing a model takes: memory, disk, arithmetic, each as a formula of the model's dimensions and the
// calibration text. docs/quantization.md, "Cost".
#pragma once

#include <vector>

#include "plan/model_source.h"
#include "trefoil/plan.h"

namespace trefoil {

struct QuantizeNeeds {
  int64_t tokens = 0;   // of calibration
  int64_t threads = 1;  // experts that are worked on at the same time
};

// Resident at the worst moment, which is inside the experts of the last layer. As the job in src/quantize works: both
// activation streams (the quantized and the original one) in memory as f32, one expert per thread, the encoded experts
// of one layer until its shard is written. The mapped source is page cache, which the kernel takes back, and is not
// counted.
std::vector<PlanLine> quantize_memory(const ModelConfig& config, const QuantizeNeeds& needs,
                                      uint64_t layer_output_bytes);

// Multiplications and additions, counted apart.
std::vector<ComputeEstimate> quantize_compute(const ModelConfig& config, const QuantizeNeeds& needs,
                                              uint64_t dense_active_parameters);

}  // namespace trefoil
