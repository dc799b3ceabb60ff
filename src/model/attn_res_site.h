// One place where Attention Residuals pick a sublayer's input: the mix of the stacked block sums and the running sum.
// Formula: kernels/attn_res.h. docs/architecture.md, "Attention Residuals".
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "model/linear.h"
#include "model/weight_loader.h"

namespace trefoil {

class AttnResSite {
 public:
  // Reads {name}_norm.weight [hidden] and {name}_proj.weight [1, hidden] and keeps their product.
  AttnResSite(const ModelConfig& config, const WeightLoader& weights, const std::string& name);

  // Rows [begin, begin + count) of the stream, mixed: [count, hidden].
  std::vector<float> mix(const Runtime& runtime, const ResidualStream& stream, int64_t begin, int64_t count) const;

 private:
  float eps_;
  std::vector<float> weight_;  // norm * proj, [hidden]
};

}  // namespace trefoil
