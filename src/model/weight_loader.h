// Takes the weights of one module out of a WeightSource, each with the shape the config asks for. A weight that is
// missing or has another shape is refused with its name, both shapes, and the config keys the expected sizes come from.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/weights.h"

namespace trefoil {

// A size and the config key, or product of keys, that asks for it: {12288, "num_heads x head_dim"}.
struct Dim {
  int64_t size = 0;
  std::string_view from;
};

class WeightLoader {
 public:
  // `prefix` ends with a dot: "model.layers.3.self_attn.".
  WeightLoader(const WeightSource& source, std::string prefix) : source_(source), prefix_(std::move(prefix)) {}

  WeightLoader sub(std::string_view name) const { return {source_, prefix_ + std::string(name) + "."}; }
  const std::string& prefix() const { return prefix_; }

  std::unique_ptr<LinearWeight> linear(std::string_view name, Dim out_features, Dim in_features) const;
  // `name` without ".weight" where the tensor has it.
  std::vector<float> weight_vector(std::string_view name, Dim size) const;
  std::vector<float> tensor(std::string_view name, std::initializer_list<Dim> shape) const;

  // True when a Linear of this name exists, whatever its shape.
  bool has_linear(std::string_view name) const;

 private:
  const WeightSource& source_;
  std::string prefix_;
};

}  // namespace trefoil
