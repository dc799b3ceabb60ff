// In which order a shard holds its tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace trefoil {

// The order in which the safetensors package writes: by dtype, widest element first, then by name. compressed-tensors
// 0.17.1 leaves shards so.
bool precedes_in_package_order(DType dtype_a, std::string_view name_a, DType dtype_b, std::string_view name_b);
bool is_in_package_order(const std::vector<TensorInfo>& tensors);
void sort_into_package_order(std::vector<TensorPlan>& tensors);

// Makes every expert one contiguous run, so that it can be read at once: first weight_packed and weight_scale expert by
// expert (in order of their numbers, w1 w2 w3), then the weight_shape tensors, then all others as they stood. Leaves
// the order alone when the experts are contiguous already.
void make_experts_contiguous(std::vector<TensorPlan>& tensors);

// "experts.9" before "experts.10": runs of digits compare as numbers.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace trefoil
