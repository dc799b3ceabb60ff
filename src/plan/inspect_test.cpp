#include "trefoil/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/plan_test_data.h"
#include "support/expect_error.h"

namespace trefoil {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::copy_tiny_without_shards;
using testing::edit_json_file;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TempDir;

auto finding(Finding::Severity severity, const std::string& part) {
  return Contains(AllOf(Field(&Finding::severity, severity), Field(&Finding::message, HasSubstr(part))));
}
auto error(const std::string& part) {
  return finding(Finding::Severity::kError, part);
}
auto warning(const std::string& part) {
  return finding(Finding::Severity::kWarning, part);
}

// The report on the small model without shards after edits to its two files.
InspectReport edited(const testing::EditJson& config, const testing::EditJson& index) {
  const TempDir folder;
  copy_tiny_without_shards(folder.path());
  edit_json_file(folder.path() / "config.json", config);
  edit_json_file(folder.path() / "model.safetensors.index.json", index);
  return inspect({.folder = folder.path(), .config = {}, .index = {}});
}
InspectReport edited_config(const testing::EditJson& edit) {
  return edited(edit, [](auto&) {});
}
InspectReport edited_index(const testing::EditJson& edit) {
  return edited([](auto&) {}, edit);
}

ModelFiles in_folder(const std::filesystem::path& folder) {
  return {.folder = folder, .config = {}, .index = {}};
}

std::string row_of(const std::string& text, const std::string& begin) {
  const size_t at = text.find("  " + begin);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(Inspect, TheRealModelFromConfigAndIndexAlone) {
  TREFOIL_NEED_FIXTURE(config, "kimi-k3-config.json");
  TREFOIL_NEED_FIXTURE(index, "kimi-k3-index.json.gz");
  const InspectReport report = inspect({.folder = {}, .config = config, .index = index});
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_tensors, 497'220);
  EXPECT_EQ(report.num_shards, 96);
  EXPECT_FALSE(report.sizes_from_headers);
  EXPECT_EQ(report.total_bytes, 1'560'860'324'864u);
  EXPECT_EQ(report.declared_total_size, report.total_bytes);
  EXPECT_EQ(report.per_token.routed_bytes, 25'829'572'608u);
  EXPECT_EQ(report.per_token.resident_bytes, 111'160'730'624u + 14'336u);
  EXPECT_DOUBLE_EQ(report.routed_bits_per_weight, 4.25);

  using Row = std::tuple<std::string, int64_t, uint64_t, uint64_t>;
  std::vector<Row> rows;
  for (const ComponentSize& size : report.components) {
    rows.emplace_back(size.component, size.tensors, size.parameters, size.bytes);
  }
  EXPECT_THAT(
      rows,
      ElementsAre(Row{"routed experts, packed", 247'296, 2'722'740'830'208, 1'361'370'415'104},
                  Row{"routed experts, scales", 247'296, 0, 85'085'650'944},
                  Row{"KDA attention", 966, 30'618'088'704, 61'258'257'408},
                  Row{"shared experts", 276, 12'155'092'992, 24'310'185'984},
                  Row{"MLA attention", 192, 5'572'706'304, 11'145'412'608},
                  Row{"latent down/up projections", 184, 4'726'980'608, 9'453'961'216},
                  Row{"embed_tokens", 1, 1'174'405'120, 2'348'810'240}, Row{"lm_head", 1, 1'174'405'120, 2'348'810'240},
                  Row{"dense MLP", 3, 726'663'168, 1'453'326'336},
                  Row{"router weight + bias", 184, 590'955'008, 1'182'074'880},
                  Row{"norms + AttnRes vectors", 653, 4'350'976, 8'701'952},
                  Row{"vision tower", 165, 401'214'464, 802'428'928}, Row{"projector", 3, 46'144'512, 92'289'024}));
  const std::string text = to_text(report);
  EXPECT_THAT(row_of(text, "text total"),
              AllOf(HasSubstr("497,052"), HasSubstr("2,779,484,478,208"), HasSubstr("1,559,965,606,912")));
  EXPECT_THAT(row_of(text, "all"),
              AllOf(HasSubstr("497,220"), HasSubstr("2,779,931,837,184"), HasSubstr("1,560,860,324,864")));
  EXPECT_THAT(text, AllOf(HasSubstr("they add up to the index's total_size"), HasSubstr("91-92"),
                          HasSubstr("routed experts per MoE layer: 896")));

  ASSERT_EQ(report.layers.size(), 93u);
  EXPECT_EQ(report.layers[0].ffn, "dense");
  EXPECT_EQ(report.layers[0].bytes, 2'341'213'184u);
  EXPECT_EQ(report.layers[1].bytes, 16'990'092'800u);  // a KDA layer's shard
  EXPECT_EQ(report.layers[3].bytes, 16'566'684'160u);  // an MLA layer's shard
  EXPECT_EQ(report.layers[92].attention, "MLA");
  EXPECT_EQ(report.formats[0].linears, 247'296);
  // The release's ignore list forgets 3 Linears in each of 92 layers, 2 in each of 93, and the last mix.
  EXPECT_THAT(report.findings, ElementsAre(Field(&Finding::message, HasSubstr("claims 463 Linears"))));
}

TEST(Inspect, ShardsAndNamesTellTheSame) {
  const TempDir folder;
  copy_tiny_without_shards(folder.path());
  const InspectReport computed = inspect(in_folder(folder.path()));
  const InspectReport read = inspect(in_folder(testing::tiny_k3_dir()));
  EXPECT_TRUE(read.sizes_from_headers);
  EXPECT_FALSE(computed.sizes_from_headers);
  EXPECT_EQ(computed.total_bytes, read.total_bytes);
  EXPECT_EQ(to_json(computed).substr(to_json(computed).find("\"expert_format\"")),
            to_json(read).substr(to_json(read).find("\"expert_format\"")));
  EXPECT_TRUE(read.ok());
}

TEST(Inspect, SeesWhatIsMissing) {
  const InspectReport report = edited_index([](auto& index) {
    for (const std::string part : {"w1.weight_packed", "w1.weight_scale", "w2.weight_packed", "w2.weight_scale",
                                   "w3.weight_packed", "w3.weight_scale"}) {
      index["weight_map"].erase("language_model.model.layers.2.block_sparse_moe.experts.7." + part);
    }
    index["weight_map"].erase("language_model.model.norm.weight");
  });
  EXPECT_FALSE(report.ok());
  EXPECT_THAT(report.findings, error("layer 2 has 31, the config says 32"));
  EXPECT_THAT(report.findings, error("7 tensors are missing, the first: language_model.model.layers.2."
                                     "block_sparse_moe.experts.7.w1.weight_packed"));
  EXPECT_THAT(report.findings, error("add up to"));
}

TEST(Inspect, SeesLayerListsThatContradictTheTensors) {
  const InspectReport report = edited_config([](auto& config) {
    config["text_config"]["linear_attn_config"]["kda_layers"] = {1, 2, 4};
    config["text_config"]["linear_attn_config"]["full_attn_layers"] = {3, 5};
  });
  EXPECT_THAT(report.findings, error("layer 2 is MLA by the config and has tensors of KDA"));
}

TEST(Inspect, SeesTensorsWithoutAPlace) {
  const InspectReport report = edited_index([](auto& index) {
    index["weight_map"]["language_model.model.layers.1.block_sparse_moe.experts.32.w1.weight_packed"] =
        "model-00002-of-000008.safetensors";
    index["weight_map"]["language_model.model.layers.1.self_attn.q_proj.bias"] = "model-00002-of-000008.safetensors";
  });
  EXPECT_THAT(report.findings, error("1 tensors have no place"));
  EXPECT_THAT(report.findings, warning("self_attn.q_proj.bias"));
}

TEST(Inspect, SeesShapesThatContradictTheConfig) {
  const TempDir folder;
  for (const auto& entry : std::filesystem::directory_iterator(testing::tiny_k3_dir())) {
    std::filesystem::create_symlink(entry.path(), folder.path() / entry.path().filename());
  }
  std::filesystem::remove(folder.path() / "config.json");
  testing::write_text(folder.path() / "config.json", testing::read_text(testing::tiny_k3_dir() / "config.json"));
  edit_json_file(folder.path() / "config.json", [](auto& config) { config["text_config"]["q_lora_rank"] = 64; });
  EXPECT_THAT(inspect(in_folder(folder.path())).findings,
              error("q_a_layernorm.weight is BF16 [96], expected BF16 [64]"));
}

TEST(Inspect, AConfigOfABillionExpertsIsSeenThrough) {
  const InspectReport report = edited_config([](auto& config) { config["text_config"]["num_experts"] = 1 << 30; });
  EXPECT_THAT(report.findings, error("the config demands 25,769,"));
}

TEST(Inspect, TwoConfigsOrNoneIsAnError) {
  EXPECT_THAT(edited_config([](auto& config) {
                config["quantization_config"] = config["text_config"]["quantization_config"];
              }).findings,
              error("two quantization_configs"));
  EXPECT_THAT(edited_config([](auto& config) { config["text_config"].erase("quantization_config"); }).findings,
              error("no quantization_config"));
}

TEST(Inspect, ConfigsThatMislabelTheExpertsAreErrors) {
  const InspectReport report = edited_config([](auto& config) {
    auto& group = config["text_config"]["quantization_config"]["config_groups"]["group_0"];
    group["weights"]["num_bits"] = 8;
    group["weights"]["group_size"] = 16;
  });
  EXPECT_THAT(report.findings, error("says num_bits 8, the routed experts are 4"));
  EXPECT_THAT(report.findings, error("says group_size 16, the routed experts are 32"));
  EXPECT_THAT(edited_config([](auto& config) {
                config["text_config"]["quantization_config"]["ignore"].push_back("re:.*experts.*");
              }).findings,
              error("does not claim 384 Linears that are packed"));
}

TEST(Inspect, QuantizedCheckpointsWithoutShards) {
  for (const PackedLayout layout : {PackedLayout::kDense, PackedLayout::kPadded}) {
    const TempDir folder;
    testing::write_quantized_tiny(folder.path(), {.layout = layout});
    const InspectReport report = inspect(in_folder(folder.path()));
    EXPECT_TRUE(report.ok());
    EXPECT_THAT(report.findings, IsEmpty());  // our own ignore list forgets nothing
    EXPECT_EQ(report.expert_format, layout == PackedLayout::kDense ? "int3 dense, group 64" : "int3 padded, group 64");
    EXPECT_EQ(report.components[2].component, "routed experts, shapes");
    EXPECT_EQ(report.components[2].bytes, 384u * 16);
  }
}

TEST(Inspect, TotalSizeTellsTheLayoutWhenTheVersionLies) {
  const TempDir folder;
  testing::write_quantized_tiny(folder.path(), {.layout = PackedLayout::kDense});
  edit_json_file(folder.path() / "config.json",
                 [](auto& config) { config["quantization_config"]["version"] = "0.17.1"; });
  const InspectReport report = inspect(in_folder(folder.path()));
  EXPECT_EQ(report.expert_format, "int3 dense, group 64");
  EXPECT_THAT(report.findings, warning("version \"0.17.1\" stands for the padded layout"));
}

TEST(Inspect, ClaimsOfNoUsableWidthAreRefused) {
  for (const auto& [bits, group] : {std::pair{5, 64}, std::pair{3, 0}, std::pair{3, 100}}) {
    const TempDir folder;
    testing::write_quantized_tiny(folder.path(), {});
    edit_json_file(folder.path() / "config.json", [&, b = bits, g = group](auto& config) {
      auto& weights = config["quantization_config"]["config_groups"]["group_0"]["weights"];
      weights["num_bits"] = b;
      weights["group_size"] = g;
    });
    EXPECT_THROW(inspect(in_folder(folder.path())), Error) << bits << " " << group;
  }
}

TEST(Inspect, SomeShardsMissingIsAnError) {
  const TempDir folder;
  copy_tiny_without_shards(folder.path());
  testing::write_text(folder.path() / "model-00001-of-000008.safetensors", "");
  const InspectReport report = inspect(in_folder(folder.path()));
  EXPECT_EQ(report.shards_present, 1);
  EXPECT_THAT(report.findings, error("7 of 8 shards are missing"));
}

TEST(Inspect, AFolderWithoutAModelIsNotFound) {
  const TempDir folder;
  EXPECT_THROW(inspect(in_folder(folder.path())), Error);
  std::filesystem::copy_file(testing::tiny_k3_dir() / "config.json", folder.path() / "config.json");
  EXPECT_THROW(inspect(in_folder(folder.path())), Error);
}

TEST(ListTensors, FindsByPatternAnywhereInTheName) {
  const auto rows = list_tensors(in_folder(testing::tiny_k3_dir()), R"(experts\.31\.w2\.)");
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0].name, "language_model.model.layers.1.block_sparse_moe.experts.31.w2.weight_packed");
  EXPECT_EQ(rows[0].component, "routed experts, packed");
  EXPECT_EQ(rows[0].dtype, "U8");
  EXPECT_THAT(rows[0].shape, ElementsAre(128, 96));
  EXPECT_EQ(rows[0].shard, "model-00002-of-000008.safetensors");
  EXPECT_THAT(to_text(rows), HasSubstr("8 tensors, "));
  EXPECT_EQ(nlohmann::json::parse(to_json(rows)).size(), 8u);
  EXPECT_EQ(list_tensors(in_folder(testing::tiny_k3_dir()), "").size(), 914u);
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "\"(\"",
                                  [] { list_tensors(in_folder(testing::tiny_k3_dir()), "("); }));
}

}  // namespace
}  // namespace trefoil
