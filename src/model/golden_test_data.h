// For tests: the goldens of tests/golden as named f32 blocks, the bundled model, and how far two blocks are apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "checkpoint/safetensors.h"
#include "model/checkpoint_weights.h"
#include "model/model.h"
#include "support/test_support.h"

namespace trefoil::testing {

// Every tensor of one safetensors file as f32 (F32) or exact integers (I64).
class Goldens {
 public:
  explicit Goldens(const fs::path& path) {
    const InputFile file(path);
    const SafetensorsHeader header = read_safetensors_header(file);
    for (const TensorInfo& tensor : header.tensors) {
      const uint64_t offset = header.data_start + tensor.begin;
      if (tensor.dtype == DType::kF32) {
        std::vector<float>& values = floats_[tensor.name];
        values.resize(tensor.size() / sizeof(float));
        file.read_at(offset, std::as_writable_bytes(std::span(values)));
      } else if (tensor.dtype == DType::kI64) {
        std::vector<int64_t>& values = ints_[tensor.name];
        values.resize(tensor.size() / sizeof(int64_t));
        file.read_at(offset, std::as_writable_bytes(std::span(values)));
      }
    }
  }

  bool has(const std::string& name) const { return floats_.contains(name) || ints_.contains(name); }
  const std::vector<float>& floats(const std::string& name) const { return floats_.at(name); }
  const std::vector<int64_t>& ints(const std::string& name) const { return ints_.at(name); }

 private:
  std::map<std::string, std::vector<float>> floats_;
  std::map<std::string, std::vector<int64_t>> ints_;
};

inline float max_abs(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

inline float max_abs_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // a NaN is the largest
  }
  return largest;
}

// max |a - b| / max |b|.
inline float relative_error(std::span<const float> a, std::span<const float> b) {
  return max_abs_difference(a, b) / max_abs(b);
}

inline int64_t argmax(std::span<const float> row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

inline std::shared_ptr<const Checkpoint> open_tiny_k3() {
  return std::make_shared<const Checkpoint>(Checkpoint::open(tiny_k3_dir()));
}

// tiny-k3 with the given options; `pool` must outlive it.
inline std::unique_ptr<Model> load_tiny_k3(const ForwardOptions& options, ThreadPool& pool) {
  return std::make_unique<Model>(load_model_config(tiny_k3_dir()), std::make_shared<CheckpointWeights>(open_tiny_k3()),
                                 options, pool);
}

}  // namespace trefoil::testing
