// The values of every tensor: which distribution a name stands for, and the bytes of any part of it. docs/synthetic.md,
// "Values".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/model_config.h"
#include "checkpoint/safetensors.h"
#include "trefoil/synthesize.h"

namespace trefoil {

class TensorValues {
 public:
  TensorValues(const ModelConfig& config, uint64_t seed, SyntheticRouting routing);

  // Bytes of elements [first, first + count) of a BF16 or F32 tensor. `first` is even.
  std::vector<std::byte> plain(const TensorPlan& tensor, uint64_t first, uint64_t count) const;

  // A routed expert's Linear: weight_packed, then weight_scale. `module` is its name without a suffix.
  std::vector<std::byte> expert(std::string_view module, int64_t out_features, int64_t in_features) const;

 private:
  std::vector<float> values(const TensorPlan& tensor, uint64_t first, uint64_t count) const;

  ModelConfig config_;
  uint64_t seed_;
  SyntheticRouting routing_;
};

}  // namespace trefoil
