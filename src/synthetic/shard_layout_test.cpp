#include "synthetic/shard_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/tensor_inventory.h"
#include "checkpoint/text_stream.h"
#include "support/expect_error.h"
#include "support/test_support.h"
#include "synthetic/synthetic_config.h"

namespace trefoil {
namespace {

using testing::fails_with;
using testing::fixture;

constexpr const char* kLayer1 = "language_model.model.layers.1.";

ModelConfig release_config(const std::string& layers) {
  SynthesizeOptions options;
  options.layers = layers;
  options.vocab_size = 163840;
  return synthetic_config(options);
}

uint64_t offset_of(const SyntheticShard& shard, const std::string& name) {
  uint64_t offset = 0;
  for (const TensorPlan& tensor : shard.tensors) {
    if (tensor.name == name) return offset;
    uint64_t bytes = 0;
    EXPECT_TRUE(byte_size_of(tensor.shape, tensor.dtype, &bytes));
    offset += bytes;
  }
  ADD_FAILURE() << name << " is in no shard";
  return 0;
}

// Counts and bytes by hand from the table of kimi-k3's shards.
TEST(ShardLayout, WholeModelHasTheReleasesShards) {
  const ShardLayout layout = lay_out(release_config(""), 0);
  ASSERT_EQ(layout.shards.size(), 94u);
  EXPECT_EQ(layout.num_tensors, 497'052);
  EXPECT_EQ(layout.total_size, 1'559'965'606'912u);
  EXPECT_EQ(layout.expert_bytes, 1'446'456'066'048u);
  EXPECT_EQ(layout.shards[0].tensors.size(), 23u);
  EXPECT_EQ(layout.shards[0].bytes, 2'341'213'184u);
  EXPECT_EQ(layout.shards[1].tensors.size(), 5'404u);  // KDA
  EXPECT_EQ(layout.shards[1].bytes, 16'990'092'800u);
  for (const size_t mla : {3u, 91u, 92u}) {
    EXPECT_EQ(layout.shards[mla].tensors.size(), 5'398u);
    EXPECT_EQ(layout.shards[mla].bytes, 16'566'684'160u);
  }
  EXPECT_EQ(layout.shards[93].tensors.size(), 5u);
  EXPECT_EQ(layout.shards[93].bytes, 4'697'663'488u);
  EXPECT_EQ(layout.shards[93].file, "model-00094-of-000094.safetensors");
}

// Offsets that others read from the release's second shard: experts follow the trunk, one contiguous run each.
TEST(ShardLayout, ExpertsLieWhereTheReleaseHasThem) {
  const ShardLayout layout = lay_out(release_config("2"), 0);
  const std::string expert = std::string(kLayer1) + "block_sparse_moe.experts.0.";
  EXPECT_EQ(offset_of(layout.shards[1], expert + "w1.weight_packed"), 1'267'744'256u);
  EXPECT_EQ(offset_of(layout.shards[1], std::string(kLayer1) + "block_sparse_moe.experts.1.w1.weight_packed"),
            1'285'291'520u);
  std::vector<std::string> names;
  for (const TensorPlan& tensor : layout.shards[1].tensors) names.push_back(tensor.name);
  const auto at = std::find(names.begin(), names.end(), expert + "w1.weight_packed");
  const std::vector<std::string> run(at, at + 6);
  EXPECT_EQ(run, (std::vector<std::string>{expert + "w1.weight_packed", expert + "w1.weight_scale",
                                           expert + "w2.weight_packed", expert + "w2.weight_scale",
                                           expert + "w3.weight_packed", expert + "w3.weight_scale"}));
}

// The release's second shard has a header of 818,696 bytes, so its data begin at 818,704. Ours names the format too.
TEST(ShardLayout, HeaderHasTheReleasesSizeButForTheMetadata) {
  const ShardLayout layout = lay_out(release_config("2"), 0);
  const testing::TempDir folder;
  const auto data_start = [&](const std::map<std::string, std::string>& metadata) {
    const SafetensorsWriter writer(folder.path() / "shard", layout.shards[1].tensors, 8, metadata);
    return fs::file_size(folder.path() / "shard.partial");
  };
  EXPECT_EQ(data_start({}), 818'704u);
  EXPECT_EQ(data_start({{"format", "pt"}}), 818'704u + 32u);
}

TEST(ShardLayout, NamesAndShardsAreTheRealIndexs) {
  TREFOIL_NEED_FIXTURE(path, "kimi-k3-index.json.gz");
  const CheckpointIndex real = parse_index(read_text_stream(path, 1ull << 31), path.string());
  const CheckpointIndex made = index_of(lay_out(release_config(""), 0));
  std::map<std::string, std::string> real_text;  // name -> number of its shard
  for (const CheckpointIndex::Entry& entry : real.entries) {
    if (entry.name.starts_with("language_model.")) real_text[entry.name] = real.shards[entry.shard].substr(0, 11);
  }
  ASSERT_EQ(made.entries.size(), real_text.size());
  for (const CheckpointIndex::Entry& entry : made.entries) {
    const auto found = real_text.find(entry.name);
    ASSERT_NE(found, real_text.end()) << entry.name;
    ASSERT_EQ(made.shards[entry.shard].substr(0, 11), found->second) << entry.name;
  }
}

TEST(ShardLayout, BuiltInConfigIsTheRealOne) {
  TREFOIL_NEED_FIXTURE(path, "kimi-k3-config.json");
  SynthesizeOptions options;
  options.vocab_size = 163840;
  const std::string built_in = write_synthetic_config(synthetic_config(options));
  options.config = path;
  const ModelConfig real = parse_model_config(testing::read_text(path), path.string());
  EXPECT_EQ(write_synthetic_config(synthetic_config(options)), built_in);
  EXPECT_EQ(write_synthetic_config(real), built_in);  // token ids too
}

TEST(ShardLayout, ShardSizeNeverCutsAnExpert) {
  SynthesizeOptions options;
  options.config = testing::tiny_k3_dir() / "config.json";
  const ModelConfig config = synthetic_config(options);
  constexpr uint64_t kLimit = 200'000;
  const ShardLayout layout = lay_out(config, kLimit);
  const TensorInventory inventory(config, std::nullopt, ExpertStorage{}, "language_model.");
  std::map<std::pair<int64_t, int64_t>, std::set<std::string>> shards_of_expert;
  uint64_t total = 0;
  for (const SyntheticShard& shard : layout.shards) {
    EXPECT_TRUE(shard.bytes <= kLimit || shard.tensors.size() == 1) << shard.file;
    total += shard.bytes;
    for (const TensorPlan& tensor : shard.tensors) {
      const auto identity = inventory.identify(tensor.name);
      ASSERT_TRUE(identity.has_value()) << tensor.name;
      if (identity->expert >= 0) shards_of_expert[{identity->layer, identity->expert}].insert(shard.file);
    }
  }
  EXPECT_EQ(total, layout.total_size);
  EXPECT_GT(layout.shards.size(), 50u);
  EXPECT_EQ(shards_of_expert.size(), 4u * 32u);
  for (const auto& [expert, files] : shards_of_expert) EXPECT_EQ(files.size(), 1u) << expert.first << expert.second;
  EXPECT_EQ(lay_out(config, 1ull << 40).shards.size(), 1u);
}

TEST(SyntheticConfig, LayersAreANumberOrKinds) {
  const ModelConfig first = release_config("5");
  EXPECT_EQ(first.num_hidden_layers, 5);
  EXPECT_EQ(first.first_k_dense_replace, 1);
  EXPECT_TRUE(first.is_kda(2));
  EXPECT_FALSE(first.is_kda(3));
  EXPECT_TRUE(first.is_kda(4));
  const ModelConfig kinds = release_config("dense-mla,dense-kda,mla,kda");
  EXPECT_EQ(kinds.first_k_dense_replace, 2);
  EXPECT_FALSE(kinds.is_kda(0));
  EXPECT_TRUE(kinds.is_kda(1));
  EXPECT_FALSE(kinds.is_kda(2));
  EXPECT_TRUE(kinds.is_kda(3));
  EXPECT_EQ(release_config("kda").first_k_dense_replace, 0);
}

TEST(SyntheticConfig, WrittenConfigReadsBack) {
  const ModelConfig config = release_config("dense-kda,mla,kda");
  const ModelConfig read = parse_model_config(write_synthetic_config(config), "config.json");
  EXPECT_EQ(write_synthetic_config(read), write_synthetic_config(config));
  EXPECT_EQ(read.eos_token_ids, (std::vector<int64_t>{163586}));
  EXPECT_EQ(read.bos_token_id, 163584);
  EXPECT_EQ(read.pad_token_id, 163839);
}

TEST(SyntheticConfig, RefusesWhatCannotBe) {
  const auto refuses = [](const std::string& part, const std::function<void(SynthesizeOptions&)>& change) {
    SynthesizeOptions options;
    change(options);
    return fails_with(ErrorCode::kInvalidArgument, part, [&] { synthetic_config(options); });
  };
  EXPECT_TRUE(refuses("the config has 93", [](auto& o) { o.layers = "94"; }));
  EXPECT_TRUE(refuses("the config has 93", [](auto& o) { o.layers = "0"; }));
  EXPECT_TRUE(refuses("'gqa' is neither", [](auto& o) { o.layers = "kda,gqa"; }));
  EXPECT_TRUE(refuses("'' is neither", [](auto& o) { o.layers = "kda,"; }));
  EXPECT_TRUE(refuses("dense layers come before", [](auto& o) { o.layers = "kda,dense-kda"; }));
  EXPECT_TRUE(refuses("16 experts per token of 8", [](auto& o) { o.num_experts = 8; }));
  EXPECT_TRUE(refuses("-1 experts per token", [](auto& o) { o.num_experts_per_token = -1; }));
  EXPECT_TRUE(refuses("65537 experts", [](auto& o) { o.num_experts = 65'537; }));
  EXPECT_TRUE(refuses("vocabulary of 511", [](auto& o) { o.vocab_size = 511; }));
  EXPECT_TRUE(refuses("vocabulary of 1048577", [](auto& o) { o.vocab_size = (1 << 20) + 1; }));
  SynthesizeOptions absent;
  absent.config = "no-such-config.json";
  EXPECT_TRUE(fails_with(ErrorCode::kNotFound, "no-such-config.json", [&] { synthetic_config(absent); }));
}

}  // namespace
}  // namespace trefoil
