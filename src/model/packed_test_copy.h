// For tests: the bundled model with its experts rounded to a few bits, in every layout that packed integers come in.
#pragma once

#include <algorithm>
#include <cmath>

#include "checkpoint/linear_storage.h"
#include "model/golden_test_data.h"
#include "tensor/bf16.h"
#include "tensor/packed_int.h"

namespace trefoil::testing {

struct PackedCopy {
  int bits = 3;
  PackedLayout layout = PackedLayout::kDense;
  int64_t group_size = 64;
};

// Rounds every expert weight of an MXFP4 checkpoint to a few bits and writes it; everything else as it is.
inline void write_packed_copy(const Checkpoint& from, const fs::path& folder, const PackedCopy& copy) {
  constexpr std::string_view kPacked = ".weight_packed";
  const int64_t group = copy.group_size;
  const int64_t limit = int64_t{1} << (copy.bits - 1);
  std::vector<TensorPlan> plan;
  for (const TensorRef& tensor : from.tensors()) {
    const std::string& name = tensor.info.name;
    if (name.ends_with(".weight_scale")) continue;
    if (!name.ends_with(kPacked)) {
      plan.push_back({name, tensor.info.dtype, tensor.info.shape});
      continue;
    }
    const std::string module = name.substr(0, name.size() - kPacked.size());
    const int64_t rows = tensor.info.shape[0], cols = 2 * tensor.info.shape[1];
    plan.push_back({name, DType::kI32, {rows, packed_words(copy.bits, cols, copy.layout)}});
    plan.push_back({module + ".weight_scale", DType::kBF16, {rows, cols / group}});
    plan.push_back({module + ".weight_shape", DType::kI64, {2}});
  }
  SafetensorsWriter writer(folder / "model.safetensors", plan);
  for (const TensorPlan& tensor : plan) {
    if (tensor.name.ends_with(".weight_scale") || tensor.name.ends_with(".weight_shape")) continue;
    if (!tensor.name.ends_with(kPacked)) {
      writer.write(tensor.name, from.read_all(from.at(tensor.name)));
      continue;
    }
    const std::string module = tensor.name.substr(0, tensor.name.size() - kPacked.size());
    const StoredLinear linear = resolve_linear(from, module);
    const size_t cols = static_cast<size_t>(linear.in_features);
    std::vector<float> values(static_cast<size_t>(linear.out_features) * cols);
    decode_linear(from, linear, 0, linear.out_features, values);
    std::vector<uint16_t> scales;
    std::vector<int8_t> codes(values.size());
    for (size_t i = 0; i < values.size(); i += static_cast<size_t>(group)) {
      const float scale = round_to_bf16(max_abs(std::span(values).subspan(i, static_cast<size_t>(group))) /
                                            (static_cast<float>(limit) - 0.5f) +
                                        1e-6f);
      scales.push_back(f32_to_bf16(scale));
      for (size_t k = i; k < i + static_cast<size_t>(group); ++k) {
        codes[k] = static_cast<int8_t>(std::clamp<int64_t>(std::lround(values[k] / scale), -limit, limit - 1));
      }
    }
    std::vector<uint32_t> words(static_cast<size_t>(tensor.shape[1]));
    for (size_t row = 0; row < static_cast<size_t>(linear.out_features); ++row) {
      pack_row(copy.bits, copy.layout, std::span(codes).subspan(row * cols, cols), words);
      writer.write(tensor.name, std::as_bytes(std::span(words)));
    }
    const int64_t shape[] = {linear.out_features, linear.in_features};
    writer.write(module + ".weight_scale", std::as_bytes(std::span(scales)));
    writer.write(module + ".weight_shape", std::as_bytes(std::span(shape)));
  }
  writer.commit();
}

}  // namespace trefoil::testing
