#include "quantize/shard_plan.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "quantize/staged_shards.h"
#include "support/expect_error.h"
#include "support/raw_checkpoint.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using testing::fails_with;
using testing::RawShards;
using testing::RawTensor;
using testing::TempDir;
using testing::tiny_k3_dir;

std::vector<std::string> names_of(const ShardPlan& plan) {
  std::vector<std::string> names;
  for (const ShardTensor& tensor : plan.tensors) names.push_back(tensor.plan.name);
  return names;
}

RawTensor u8(const std::string& name, int64_t rows, int64_t cols) {
  return {name, "U8", {rows, cols}, std::string(static_cast<size_t>(rows * cols), '\x01')};
}

// Two experts of 1 x 64 weights, their tensors scattered over a shard between two others.
RawShards scattered() {
  const std::string e = "language_model.model.layers.1.block_sparse_moe.experts.";
  std::vector<RawTensor> tensors = {{"z.norm", "BF16", {2}, "abcd"}};
  for (const char* part : {".w1", ".w2", ".w3"}) {
    for (const char* expert : {"1", "0"}) {
      tensors.push_back(u8(e + expert + part + ".weight_packed", 1, 32));
      tensors.push_back(u8(e + expert + part + ".weight_scale", 1, 2));
    }
  }
  tensors.push_back({"a.bias", "F32", {1}, "abcd"});
  return {{"model-1.safetensors", tensors}, {"model-2.safetensors", {{"b.bias", "F32", {1}, "efgh"}}}};
}

// The experts of `scattered`, found by name alone: there is no config.
std::vector<MoeLayer> experts_of(const Checkpoint& checkpoint) {
  MoeLayer layer{1, {}};
  for (int64_t expert : {0, 1}) {
    RoutedExpert found;
    for (ExpertPart part : kExpertParts) {
      found.linear[static_cast<size_t>(part)] =
          resolve_linear(checkpoint, expert_module("language_model.", 1, expert, part));
    }
    layer.experts.push_back(found);
  }
  return {layer};
}

TEST(ShardPlan, DenseGathersScatteredExpertsByNumberThenShapesThenTheRest) {
  TempDir temp;
  write_raw_checkpoint(temp.path(), scattered());
  const Checkpoint source = Checkpoint::open(temp.path());
  const auto plans = plan_shards(source, experts_of(source), {3, 64, PackedLayout::kDense});
  ASSERT_EQ(plans.size(), 2u);
  const std::string e1 = "language_model.model.layers.1.block_sparse_moe.experts.1.";
  const std::string e0 = "language_model.model.layers.1.block_sparse_moe.experts.0.";
  EXPECT_THAT(
      names_of(plans[0]),
      ElementsAre(e0 + "w1.weight_packed", e0 + "w1.weight_scale", e0 + "w2.weight_packed", e0 + "w2.weight_scale",
                  e0 + "w3.weight_packed", e0 + "w3.weight_scale", e1 + "w1.weight_packed", e1 + "w1.weight_scale",
                  e1 + "w2.weight_packed", e1 + "w2.weight_scale", e1 + "w3.weight_packed", e1 + "w3.weight_scale",
                  e1 + "w1.weight_shape", e0 + "w1.weight_shape", e1 + "w2.weight_shape", e0 + "w2.weight_shape",
                  e1 + "w3.weight_shape", e0 + "w3.weight_shape", "z.norm", "a.bias"));
  EXPECT_THAT(plans[0].layers, ElementsAre(1));
  EXPECT_THAT(plans[1].layers, ElementsAre());
  // packed 6 words, scale 1 bf16, shape 2 i64 for each of six Linears; 4 bytes each of the others
  EXPECT_EQ(plans[0].tensor_bytes(), 6u * (24 + 2 + 16) + 4 + 4);
}

TEST(ShardPlan, DenseKeepsTheSourcesOrderOfExpertsThatAreContiguous) {
  TempDir temp;
  RawShards shards = scattered();
  std::vector<RawTensor>& tensors = shards.at("model-1.safetensors");
  std::stable_sort(tensors.begin(), tensors.end(), [](const RawTensor& a, const RawTensor& b) {
    const auto is_first = [](const RawTensor& tensor) { return tensor.name.find("experts.1.") != std::string::npos; };
    return is_first(a) && !is_first(b);
  });
  write_raw_checkpoint(temp.path(), shards);
  const Checkpoint source = Checkpoint::open(temp.path());
  const auto plans = plan_shards(source, experts_of(source), {3, 64, PackedLayout::kDense});
  EXPECT_TRUE(names_of(plans[0])[0].ends_with("experts.1.w1.weight_packed"));
  EXPECT_TRUE(names_of(plans[0])[6].ends_with("experts.0.w1.weight_packed"));
  EXPECT_EQ(plans[0].tensors.back().copied, &source.at("a.bias"));
  EXPECT_EQ(plans[0].tensors.front().copied, nullptr);
}

TEST(ShardPlan, PaddedIsInTheOrderOfTheSafetensorsPackage) {
  TempDir temp;
  write_raw_checkpoint(temp.path(), scattered());
  const Checkpoint source = Checkpoint::open(temp.path());
  const auto plans = plan_shards(source, experts_of(source), {3, 64, PackedLayout::kPadded});
  std::vector<DType> dtypes;
  for (const ShardTensor& tensor : plans[0].tensors) {
    if (dtypes.empty() || dtypes.back() != tensor.plan.dtype) dtypes.push_back(tensor.plan.dtype);
  }
  EXPECT_THAT(dtypes, ElementsAre(DType::kI64, DType::kF32, DType::kI32, DType::kBF16));
  EXPECT_TRUE(plans[0].tensors[0].plan.name.ends_with("experts.0.w1.weight_shape"));
  EXPECT_EQ(plans[0].tensors[7].plan.shape, (Shape{1, 7})) << "64 codes at ten a word";
  EXPECT_EQ(names_of(plans[0]).back(), "z.norm");
}

TEST(ShardPlan, IndexNamesEveryTensorOnceWithTheRightTotal) {
  const Checkpoint source = Checkpoint::open(tiny_k3_dir());
  const auto layers = find_routed_experts(source, load_model_config(tiny_k3_dir()));
  const auto plans = plan_shards(source, layers, {3, 64, PackedLayout::kDense});
  const CheckpointIndex index = parse_index(write_index(index_of(plans)), "index");
  size_t tensors = 0;
  uint64_t bytes = 0;
  for (const ShardPlan& plan : plans) {
    tensors += plan.tensors.size();
    bytes += plan.tensor_bytes();
    for (const ShardTensor& tensor : plan.tensors)
      EXPECT_EQ(index.shards[index.find(tensor.plan.name)->shard], plan.file);
  }
  EXPECT_EQ(index.entries.size(), tensors);
  EXPECT_EQ(index.total_size, bytes);
  EXPECT_EQ(tensors, source.tensors().size() + 4 * 32 * 3);
}

TEST(ShardPlan, LayersThatStayAreCopied) {
  const Checkpoint source = Checkpoint::open(tiny_k3_dir());
  auto layers = find_routed_experts(source, load_model_config(tiny_k3_dir()));
  layers.resize(1);
  const auto plans = plan_shards(source, layers, {3, 64, PackedLayout::kDense});
  for (size_t shard = 0; shard < plans.size(); ++shard) EXPECT_EQ(plans[shard].layers.empty(), shard != 1) << shard;
  EXPECT_EQ(names_of(plans[2]).front(), source.header(2).tensors.front().name);
  EXPECT_NE(plans[2].tensors.front().copied, nullptr);
}

TEST(ShardPlan, RefusesAGroupSizeThatDoesNotDivideTheInputs) {
  const Checkpoint source = Checkpoint::open(tiny_k3_dir());
  const auto layers = find_routed_experts(source, load_model_config(tiny_k3_dir()));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "does not divide the 192 input columns", [&] {
    plan_shards(source, layers, {3, 128, PackedLayout::kDense});
  }));
}

TEST(EncodedLinear, IsTheKnownAnswer) {
  // -4 -3 -2 -1 0 1 2 3 -4 3 2 1 0 -1 and fifty zeros: docs/formats.md, "pack-quantized", known answers
  QuantizedMatrix matrix{1, 64, 64, 3, std::vector<int8_t>(64, 0), {0x3F81}};
  const int8_t start[] = {-4, -3, -2, -1, 0, 1, 2, 3, -4, 3, 2, 1, 0, -1};
  std::copy(std::begin(start), std::end(start), matrix.codes.begin());
  const EncodedLinear padded = encode(matrix, PackedLayout::kPadded);
  EXPECT_EQ(padded.packed.size(), 7u * 4);
  EXPECT_EQ(load<uint32_t>(padded.packed.data()), 0x38fac688u);
  const EncodedLinear dense = encode(matrix, PackedLayout::kDense);
  EXPECT_EQ(dense.packed.size(), 6u * 4);
  EXPECT_EQ(load<uint32_t>(dense.packed.data()), 0xb8fac688u);
  EXPECT_EQ(load<uint16_t>(dense.scale.data()), 0x3F81);
  EXPECT_EQ(load<int64_t>(dense.shape.data()), 1);
  EXPECT_EQ(load<int64_t>(dense.shape.data() + 8), 64);
}

TEST(StagedShards, AreWholeFilesFilledInAnyOrderAndOverSeveralRuns) {
  TempDir temp, out;
  write_raw_checkpoint(temp.path(), scattered());
  const Checkpoint source = Checkpoint::open(temp.path());
  const auto layers = experts_of(source);
  const ExpertEncoding encoding{3, 64, PackedLayout::kDense};
  const auto plans = plan_shards(source, layers, encoding);
  std::vector<WrittenRange> written;
  {
    StagedShards shards(source, plans, encoding, out.path());
    for (const RoutedExpert& expert : layers[0].experts) {
      for (const StoredLinear& linear : expert.linear) {
        const auto rows = static_cast<size_t>(linear.out_features), cols = static_cast<size_t>(linear.in_features);
        const QuantizedMatrix ones{linear.out_features,
                                   linear.in_features,
                                   64,
                                   3,
                                   std::vector<int8_t>(rows * cols, 1),
                                   std::vector<uint16_t>(rows * cols / 64, 0x3F80)};
        const auto ranges = shards.write(linear.module, encode(ones, PackedLayout::kDense));
        written.insert(written.end(), ranges.begin(), ranges.end());
      }
    }
  }
  StagedShards again(source, plans, encoding, out.path());
  for (const WrittenRange& range : written) EXPECT_TRUE(range_is_intact(out.path(), range));
  for (const ShardPlan& plan : plans) {
    for (const WrittenRange& range : again.copy_unchanged(plan)) EXPECT_TRUE(range_is_intact(out.path(), range));
  }
  const SafetensorsHeader header = read_safetensors_header(InputFile(out.path() / "model-1.safetensors"));
  EXPECT_EQ(header.data_start % 4096, 0u);
  EXPECT_EQ(header.tensors.size(), 20u);
  EXPECT_TRUE(fs::exists(out.path() / "model-2.safetensors"));

  const std::vector<ExpertLinears> experts = again.experts(layers[0]);
  std::vector<float> row(static_cast<size_t>(experts[0].w2->in_features()));
  experts[0].w2->decode_rows(0, 1, row);
  EXPECT_EQ(row, std::vector<float>(row.size(), 1.0f));
}

}  // namespace
}  // namespace trefoil
