#include "checkpoint/tensor_inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/text_stream.h"
#include "support/test_support.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

const ExpertStorage kRelease;
const ExpertStorage kDense3{LinearFormat::kPackedInt, 3, 64, PackedLayout::kDense};
const ExpertStorage kPadded3{LinearFormat::kPackedInt, 3, 64, PackedLayout::kPadded};
const ExpertStorage kInt4{LinearFormat::kPackedInt, 4, 64, PackedLayout::kDense};

TensorInventory inventory_of(const fs::path& config_file, const ExpertStorage& experts = kRelease) {
  const std::string json = testing::read_text(config_file);
  return TensorInventory(parse_model_config(json, config_file.string()),
                         parse_vision_config(json, config_file.string()), experts, "language_model.");
}

TensorInventory tiny_inventory(const ExpertStorage& experts = kRelease) {
  return inventory_of(testing::tiny_k3_dir() / "config.json", experts);
}

TEST(TensorInventory, DescribesEveryTensorOfTheSmallModel) {
  const TensorInventory inventory = tiny_inventory();
  const Checkpoint checkpoint = Checkpoint::open(testing::tiny_k3_dir());
  EXPECT_EQ(inventory.num_expected(), static_cast<int64_t>(checkpoint.tensors().size()));
  for (const TensorRef& tensor : checkpoint.tensors()) {
    const auto identity = inventory.identify(tensor.info.name);
    ASSERT_TRUE(identity.has_value()) << tensor.info.name;
    ASSERT_NE(identity->expected, nullptr) << tensor.info.name;
    EXPECT_TRUE(identity->expected->matches(tensor.info.dtype, tensor.info.shape))
        << tensor.info.name << " " << to_string(tensor.info.shape) << " " << to_string(identity->expected->shape);
    EXPECT_EQ(identity->expected->bytes, tensor.info.size()) << tensor.info.name;
  }
}

TEST(TensorInventory, DemandsExactlyTheTensorsOfTheSmallModel) {
  const Checkpoint checkpoint = Checkpoint::open(testing::tiny_k3_dir());
  std::set<std::string> demanded;
  const TensorInventory inventory = tiny_inventory();
  inventory.for_each_expected([&](const std::string& name, const TensorIdentity& identity) {
    EXPECT_NE(checkpoint.find(name), nullptr) << name;
    const auto back = inventory.identify(name);
    ASSERT_TRUE(back.has_value()) << name;
    EXPECT_EQ(back->expected, identity.expected) << name;
    EXPECT_EQ(back->layer, identity.layer) << name;
    EXPECT_EQ(back->expert, identity.expert) << name;
    EXPECT_EQ(back->block, identity.block) << name;
    demanded.insert(name);
  });
  EXPECT_EQ(demanded.size(), checkpoint.tensors().size());
}

// The release's sums by component, counted from its index with shapes read from shard headers.
TEST(TensorInventory, AddsUpToTheReleaseByComponent) {
  TREFOIL_NEED_FIXTURE(config_file, "kimi-k3-config.json");
  TREFOIL_NEED_FIXTURE(index_file, "kimi-k3-index.json.gz");
  const TensorInventory inventory = inventory_of(config_file);
  const CheckpointIndex index = parse_index(read_text_stream(index_file, 1ull << 31), index_file.string());
  ASSERT_EQ(index.entries.size(), 497'220u);
  EXPECT_EQ(inventory.num_expected(), 497'220);
  EXPECT_EQ(text_prefix_of(index), "language_model.");

  struct Sum {
    int64_t tensors = 0;
    uint64_t parameters = 0;
    uint64_t bytes = 0;
    bool operator==(const Sum&) const = default;
  };
  std::array<Sum, kNumComponents> sums;
  uint64_t total = 0;
  for (const CheckpointIndex::Entry& entry : index.entries) {
    const auto identity = inventory.identify(entry.name);
    ASSERT_TRUE(identity.has_value() && identity->expected != nullptr) << entry.name;
    Sum& sum = sums[static_cast<size_t>(identity->component)];
    sum.tensors += 1;
    sum.parameters += identity->expected->parameters;
    sum.bytes += identity->expected->bytes;
    total += identity->expected->bytes;
  }
  EXPECT_EQ(total, index.total_size);
  const auto sum_of = [&](Component component) { return sums[static_cast<size_t>(component)]; };
  EXPECT_EQ(sum_of(Component::kRoutedPacked), (Sum{247'296, 2'722'740'830'208, 1'361'370'415'104}));
  EXPECT_EQ(sum_of(Component::kRoutedScales), (Sum{247'296, 0, 85'085'650'944}));
  EXPECT_EQ(sum_of(Component::kRoutedShapes), (Sum{0, 0, 0}));
  EXPECT_EQ(sum_of(Component::kKda), (Sum{966, 30'618'088'704, 61'258'257'408}));
  EXPECT_EQ(sum_of(Component::kSharedExperts), (Sum{276, 12'155'092'992, 24'310'185'984}));
  EXPECT_EQ(sum_of(Component::kMla), (Sum{192, 5'572'706'304, 11'145'412'608}));
  EXPECT_EQ(sum_of(Component::kLatentProjections), (Sum{184, 4'726'980'608, 9'453'961'216}));
  EXPECT_EQ(sum_of(Component::kEmbedTokens), (Sum{1, 1'174'405'120, 2'348'810'240}));
  EXPECT_EQ(sum_of(Component::kLmHead), (Sum{1, 1'174'405'120, 2'348'810'240}));
  EXPECT_EQ(sum_of(Component::kDenseMlp), (Sum{3, 726'663'168, 1'453'326'336}));
  EXPECT_EQ(sum_of(Component::kRouter), (Sum{184, 590'955'008, 1'182'074'880}));
  EXPECT_EQ(sum_of(Component::kNorms), (Sum{653, 4'350'976, 8'701'952}));
  EXPECT_EQ(sum_of(Component::kVisionTower), (Sum{165, 401'214'464, 802'428'928}));
  EXPECT_EQ(sum_of(Component::kProjector), (Sum{3, 46'144'512, 92'289'024}));
}

TEST(TensorInventory, KnowsAnExpertInEveryStorage) {
  EXPECT_EQ(linear_bytes(kRelease, 3072, 3584), 5'505'024u + 344'064u);
  EXPECT_EQ(linear_bytes(kDense3, 3072, 3584), 3072u * 336 * 4 + 344'064u + 16);
  EXPECT_EQ(linear_bytes(kPadded3, 3072, 3584), 3072u * 359 * 4 + 344'064u + 16);
  EXPECT_EQ(linear_bytes(kPadded3, 3584, 3072), 3584u * 308 * 4 + 344'064u + 16);
  EXPECT_EQ(linear_bytes(kInt4, 3584, 3072), 3584u * 384 * 4 + 344'064u + 16);
  EXPECT_EQ(linear_bytes({LinearFormat::kPlain, 16, 0}, 10, 20), 400u);
  EXPECT_THROW(linear_bytes(kDense3, 10, 100), Error);
  EXPECT_THROW(linear_bytes({LinearFormat::kPackedInt, 5, 64}, 10, 64), Error);

  const TensorInventory inventory = tiny_inventory(kDense3);
  const std::string module = "language_model.model.layers.1.block_sparse_moe.experts.31.w2.";
  const auto packed = inventory.identify(module + "weight_packed");
  ASSERT_NE(packed->expected, nullptr);
  EXPECT_TRUE(packed->expected->matches(DType::kI32, {128, 18}));
  EXPECT_FALSE(packed->expected->matches(DType::kU8, {128, 18}));
  EXPECT_EQ(packed->expected->parameters, 128u * 192);
  EXPECT_EQ(inventory.identify(module + "weight_shape")->component, Component::kRoutedShapes);
  EXPECT_EQ(inventory.identify(module + "weight_scale")->expected->dtype, DType::kBF16);
}

TEST(TensorInventory, NamesTheConfigDoesNotDemandAreKnownButUnexpected) {
  const TensorInventory inventory = tiny_inventory();
  const std::string layers = "language_model.model.layers.";
  for (const std::string name : {
           "5.input_layernorm.weight",                           // a layer too many
           "3.self_attn.A_log",                                  // layer 3 is MLA
           "1.self_attn.kv_b_proj.weight",                       // layer 1 is KDA
           "0.block_sparse_moe.gate.weight",                     // layer 0 is dense
           "1.mlp.up_proj.weight",                               // layer 1 is not
           "1.block_sparse_moe.experts.32.w1.weight_packed",     // an expert too many
           "1.block_sparse_moe.experts.0.w1.weight",             // another storage
           "1.block_sparse_moe.experts.0.w1.weight_zero_point",  // none of ours
           "1.self_attn.q_proj.weight_packed",                   // packed, which the release does only to experts
       }) {
    const auto identity = inventory.identify(layers + name);
    ASSERT_TRUE(identity.has_value()) << name;
    EXPECT_EQ(identity->expected, nullptr) << name;
  }
  const auto block = inventory.identify("vision_tower.encoder.blocks.2.wo.weight");
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->expected, nullptr);
}

TEST(TensorInventory, OtherNamesAreUnknown) {
  const TensorInventory inventory = tiny_inventory();
  for (const std::string name :
       {"", "model.norm.weight", "language_model.model.norm", "language_model.model.norm.bias",
        "language_model.model.layers.00.input_layernorm.weight",
        "language_model.model.layers.-1.input_layernorm.weight",
        "language_model.model.layers.99999999999999999999.input_layernorm.weight", "language_model.model.layers.1",
        "language_model.model.layers.1.", "language_model.model.layers.1.block_sparse_moe.experts.0.w4.weight_packed",
        "language_model.model.layers.1.block_sparse_moe.experts.0", ".weight_packed",
        "language_model.model.layers.1.self_attn.rotary_emb.inv_freq"}) {
    EXPECT_FALSE(inventory.identify(name).has_value()) << name;
  }
}

TEST(TensorInventory, TheSameProjectionHasAShapeForEachAttentionKind) {
  const TensorInventory inventory = tiny_inventory();
  EXPECT_EQ(inventory.identify("language_model.model.layers.0.self_attn.g_proj.weight")->expected->shape,
            (Shape{256, 256}));
  EXPECT_EQ(inventory.identify("language_model.model.layers.3.self_attn.g_proj.weight")->expected->shape,
            (Shape{128, 256}));
}

TEST(TensorInventory, PaddedHeadsAreAccepted) {
  const TensorInventory inventory = tiny_inventory();  // what it identifies points into it
  const auto a_log = inventory.identify("language_model.model.layers.0.self_attn.A_log");
  EXPECT_TRUE(a_log->expected->matches(DType::kF32, {4}));
  EXPECT_TRUE(a_log->expected->matches(DType::kF32, {64}));
  EXPECT_FALSE(a_log->expected->matches(DType::kF32, {3}));
}

TEST(TensorInventory, ATextModelAloneHasNoPrefixAndNoTower) {
  const fs::path file = testing::tiny_k3_dir() / "config.json";
  const ModelConfig config = parse_model_config(testing::read_text(file), file.string());
  const TensorInventory inventory(config, std::nullopt, kRelease, "");
  EXPECT_NE(inventory.identify("model.layers.0.input_layernorm.weight")->expected, nullptr);
  EXPECT_FALSE(inventory.identify("vision_tower.encoder.final_layernorm.weight").has_value());
}

}  // namespace
}  // namespace trefoil
