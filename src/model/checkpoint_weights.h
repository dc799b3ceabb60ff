// Weights straight from a checkpoint folder, however each Linear is stored (BF16, F16, F32, MXFP4, packed integers):
// every decode reads the checkpoint's own bytes, nothing is kept decoded.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "model/weights.h"

namespace trefoil {

class CheckpointWeights : public WeightSource {
 public:
  // Finds out whether tensor names carry the "language_model." prefix of the release. Error(kNotFound) when there is no
  // embedding under either name. Keeps the checkpoint alive, as do the LinearWeights it hands out.
  explicit CheckpointWeights(std::shared_ptr<const Checkpoint> checkpoint);

  std::unique_ptr<LinearWeight> linear(std::string_view module, int64_t out_features,
                                       int64_t in_features) const override;
  std::vector<float> vector(std::string_view name, const Shape& shape) const override;

  // "language_model." or nothing.
  const std::string& prefix() const { return prefix_; }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::string prefix_;
};

}  // namespace trefoil
