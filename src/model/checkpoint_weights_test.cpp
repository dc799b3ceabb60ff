#include "model/checkpoint_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/linear_storage.h"
#include "model/golden_test_data.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

// Copies a checkpoint's text model with every Linear as plain BF16, names without the release's prefix.
void write_plain_copy(const Checkpoint& from, const fs::path& folder) {
  constexpr std::string_view kPrefix = "language_model.";
  std::vector<TensorPlan> plan;
  std::map<std::string, std::string> module_of;  // written name -> quantized module
  for (const TensorRef& tensor : from.tensors()) {
    const std::string& name = tensor.info.name;
    if (!name.starts_with(kPrefix) || name.ends_with(".weight_scale")) continue;
    if (!name.ends_with(".weight_packed")) {
      plan.push_back({name.substr(kPrefix.size()), tensor.info.dtype, tensor.info.shape});
      continue;
    }
    const std::string module = name.substr(0, name.size() - std::string(".weight_packed").size());
    const StoredLinear linear = resolve_linear(from, module);
    plan.push_back(
        {module.substr(kPrefix.size()) + ".weight", DType::kBF16, {linear.out_features, linear.in_features}});
    module_of[plan.back().name] = module;
  }
  SafetensorsWriter writer(folder / "model.safetensors", plan);
  for (const TensorPlan& tensor : plan) {
    const auto quantized = module_of.find(tensor.name);
    if (quantized == module_of.end()) {
      writer.write(tensor.name, from.read_all(from.at(std::string(kPrefix) + tensor.name)));
      continue;
    }
    const StoredLinear linear = resolve_linear(from, quantized->second);
    std::vector<float> values(static_cast<size_t>(linear.out_features * linear.in_features));
    decode_linear(from, linear, 0, linear.out_features, values);
    std::vector<uint16_t> bits;
    for (const float value : values) bits.push_back(f32_to_bf16(value));
    writer.write(tensor.name, std::as_bytes(std::span(bits)));
  }
  writer.commit();
}

TEST(CheckpointWeights, Mxfp4AndAPlainBf16CopyGiveTheSameBits) {
  const auto source = testing::open_tiny_k3();
  const testing::TempDir copy;
  write_plain_copy(*source, copy.path());
  const ModelConfig config = load_model_config(testing::tiny_k3_dir());
  ThreadPool pool(2);
  const Model packed(config, std::make_shared<CheckpointWeights>(source), {}, pool);
  const Model plain(
      config, std::make_shared<CheckpointWeights>(std::make_shared<const Checkpoint>(Checkpoint::open(copy.path()))),
      {}, pool);
  const std::vector<int32_t> ids = {521, 1342, 1073, 949, 1671, 263, 3028};
  SequenceState a = packed.new_sequence(), b = plain.new_sequence();
  EXPECT_EQ(packed.forward(ids, a), plain.forward(ids, b));
}

TEST(CheckpointWeights, AccessByReadGivesTheSameBits) {
  const auto read =
      std::make_shared<const Checkpoint>(Checkpoint::open(testing::tiny_k3_dir(), Checkpoint::Access::kRead));
  const ModelConfig config = load_model_config(testing::tiny_k3_dir());
  ThreadPool pool(2);
  const Model mapped(config, std::make_shared<CheckpointWeights>(testing::open_tiny_k3()), {}, pool);
  const Model copied(config, std::make_shared<CheckpointWeights>(read), {}, pool);
  const std::vector<int32_t> ids = {1167, 925, 2272};
  SequenceState a = mapped.new_sequence(), b = copied.new_sequence();
  EXPECT_EQ(mapped.forward(ids, a), copied.forward(ids, b));
}

TEST(CheckpointWeights, ShapesAndNamesAreDemanded) {
  const CheckpointWeights weights(testing::open_tiny_k3());
  EXPECT_THROW(weights.linear("model.layers.1.block_sparse_moe.experts.0.w9", kAnySize, kAnySize), Error);
  try {
    weights.linear("model.layers.1.block_sparse_moe.experts.0.w1", 192, 129);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("experts.0.w1: shape [192, 128], expected [192, 129]"));
  }
  EXPECT_EQ(weights.linear("model.layers.1.block_sparse_moe.experts.0.w1", kAnySize, 128)->out_features(), 192);
  EXPECT_EQ(weights.vector("model.norm.weight", {256}).size(), 256u);
  EXPECT_THROW(weights.vector("model.norm.weight", {255}), Error);
  EXPECT_THROW(weights.vector("model.layers.1.block_sparse_moe.experts.0.w1.weight_packed", {kAnySize, kAnySize}),
               Error);
}

TEST(CheckpointWeights, ACheckpointWithoutAnEmbeddingIsNotAModel) {
  const testing::TempDir folder;
  SafetensorsWriter writer(folder.path() / "model.safetensors", {{"something.weight", DType::kF32, {1}}});
  const float value = 1;
  writer.write("something.weight", std::as_bytes(std::span(&value, 1)));
  writer.commit();
  const auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(folder.path()));
  try {
    const CheckpointWeights weights(checkpoint);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("model.embed_tokens.weight"));
  }
}

}  // namespace
}  // namespace trefoil
