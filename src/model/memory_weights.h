// Weights held in memory as f32, by name: models made up by tests and tools.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "model/weights.h"

namespace trefoil {

class MemoryWeights : public WeightSource {
 public:
  // `name` as WeightSource spells it, with ".weight": "lm_head.weight", "model.layers.0.self_attn.A_log".
  // Replaces an earlier tensor of that name. values.size() is the product of `shape`.
  void set(const std::string& name, const Shape& shape, std::vector<float> values);
  void remove(const std::string& name) { tensors_.erase(name); }
  // The values of a tensor that is there, to be changed in place before a Model is made.
  std::vector<float>& at(const std::string& name);

  std::unique_ptr<LinearWeight> linear(std::string_view module, int64_t out_features,
                                       int64_t in_features) const override;
  std::vector<float> vector(std::string_view name, const Shape& shape) const override;

 private:
  struct Tensor {
    Shape shape;
    std::shared_ptr<std::vector<float>> values;
  };
  const Tensor& find(std::string_view name) const;

  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace trefoil
