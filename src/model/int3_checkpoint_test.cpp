// A checkpoint with packed 3-bit experts runs like any other, in both layouts that share the format's name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/linear_storage.h"
#include "model/checkpoint_weights.h"
#include "model/golden_test_data.h"
#include "tensor/bf16.h"
#include "tensor/packed_int.h"

namespace trefoil {
namespace {

// Rounds every expert weight to 3 bits, group 32, and writes it in the given layout.
void write_int3_copy(const Checkpoint& from, const fs::path& folder, PackedLayout layout) {
  constexpr std::string_view kPacked = ".weight_packed";
  constexpr int64_t kGroup = 32;
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
    plan.push_back({name, DType::kI32, {rows, packed_words(3, cols, layout)}});
    plan.push_back({module + ".weight_scale", DType::kBF16, {rows, cols / kGroup}});
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
    for (size_t i = 0; i < values.size(); i += kGroup) {
      const float scale = round_to_bf16(testing::max_abs(std::span(values).subspan(i, kGroup)) / 3.5f + 1e-6f);
      scales.push_back(f32_to_bf16(scale));
      for (size_t k = i; k < i + kGroup; ++k) {
        codes[k] = static_cast<int8_t>(std::clamp(std::lround(values[k] / scale), -4l, 3l));
      }
    }
    std::vector<uint32_t> words(static_cast<size_t>(tensor.shape[1]));
    for (size_t row = 0; row < static_cast<size_t>(linear.out_features); ++row) {
      pack_row(3, layout, std::span(codes).subspan(row * cols, cols), words);
      writer.write(tensor.name, std::as_bytes(std::span(words)));
    }
    const int64_t shape[] = {linear.out_features, linear.in_features};
    writer.write(module + ".weight_scale", std::as_bytes(std::span(scales)));
    writer.write(module + ".weight_shape", std::as_bytes(std::span(shape)));
  }
  writer.commit();
}

TEST(Int3Checkpoint, BothLayoutsRunAndGiveTheSameBits) {
  const auto source = testing::open_tiny_k3();
  const ModelConfig config = load_model_config(testing::tiny_k3_dir());
  ThreadPool pool(2);
  const std::vector<int32_t> ids = {521, 1342, 1073, 949, 1671, 263, 3028};
  const auto logits_of = [&](std::shared_ptr<const Checkpoint> checkpoint) {
    const Model model(config, std::make_shared<CheckpointWeights>(std::move(checkpoint)), {}, pool);
    SequenceState state = model.new_sequence();
    return model.forward(ids, state);
  };
  const auto int3_logits = [&](PackedLayout layout) {
    const testing::TempDir folder;
    write_int3_copy(*source, folder.path(), layout);
    return logits_of(std::make_shared<const Checkpoint>(Checkpoint::open(folder.path())));
  };
  const std::vector<float> dense = int3_logits(PackedLayout::kDense);
  EXPECT_EQ(dense, int3_logits(PackedLayout::kPadded));
  const float loss = testing::relative_error(dense, logits_of(source));
  EXPECT_GT(loss, 0.01f);  // three bits do cost something
  EXPECT_LT(loss, 0.7f);   // but it is still that model
}

}  // namespace
}  // namespace trefoil
