#include "checkpoint/quantization_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/name_pattern.h"
#include "checkpoint/text_stream.h"
#include "support/test_support.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::NotNull;

std::string tiny_config() {
  return testing::read_text(testing::tiny_k3_dir() / "config.json");
}

template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "";
}

QuantizationGroup group_of(std::string name, std::vector<std::string> targets) {
  QuantizationGroup group;
  group.name = std::move(name);
  group.targets = std::move(targets);
  return group;
}

QuantizationConfig config_with(std::vector<std::string> targets, std::vector<std::string> ignore = {}) {
  QuantizationConfig config;
  config.groups = {group_of("group_0", std::move(targets))};
  config.ignore = std::move(ignore);
  return config;
}

TEST(QuantizationConfig, ReadsTheReleaseWhereItStands) {
  const QuantizationConfigs configs = parse_quantization_configs(tiny_config(), "config.json");
  EXPECT_FALSE(configs.top.has_value());
  ASSERT_TRUE(configs.nested.has_value());
  EXPECT_EQ(configs.nested->format, "mxfp4-pack-quantized");
  EXPECT_EQ(configs.nested->quantization_status, "compressed");
  EXPECT_EQ(configs.nested->ignore.size(), 6u);
  ASSERT_EQ(configs.nested->groups.size(), 1u);
  const QuantizationGroup& group = configs.nested->groups[0];
  EXPECT_EQ(group.num_bits, 4);
  EXPECT_EQ(group.group_size, 32);
  EXPECT_EQ(group.type, "float");
  EXPECT_EQ(group.actorder, "");
}

TEST(QuantizationConfig, FindsBothWhenBothAreThere) {
  auto json = nlohmann::ordered_json::parse(tiny_config());
  json["quantization_config"] = json["text_config"]["quantization_config"];
  const QuantizationConfigs configs = parse_quantization_configs(json.dump(), "config.json");
  EXPECT_TRUE(configs.top.has_value());
  EXPECT_TRUE(configs.nested.has_value());
}

TEST(QuantizationConfig, RefusesOtherMethodsByName) {
  EXPECT_THAT(
      error_of([] { parse_quantization_configs(R"({"quantization_config": {"quant_method": "fp8"}})", "c.json"); }),
      HasSubstr("found \"fp8\""));
}

TEST(QuantizationConfig, TargetsMatchLikePythonsReMatch) {
  EXPECT_THAT(config_with({"re:a.b"}).match("axbc"), NotNull());  // free at the end
  EXPECT_THAT(config_with({"re:a.b$"}).match("axbc"), IsNull());
  EXPECT_THAT(config_with({"re:x"}).match("axb"), IsNull());    // anchored at the start
  EXPECT_THAT(config_with({"re:y|x"}).match("axb"), IsNull());  // every alternative is
  EXPECT_THAT(config_with({"re:.*experts\\.\\d+\\.w[123]$"}).match("m.experts.17.w2"), NotNull());
  EXPECT_THAT(config_with({"a.b"}).match("a.b"), NotNull());  // plain entries are whole names
  EXPECT_THAT(config_with({"a.b"}).match("a.b.c"), IsNull());
  EXPECT_THAT(config_with({"a.b"}).match("axb"), IsNull());
  EXPECT_THAT(config_with({"Linear"}).match("anything"), NotNull());
  EXPECT_THAT(config_with({"Linear"}, {"any"}).match("anything"), NotNull());  // ignore is no substring match
  EXPECT_THAT(config_with({"Linear"}, {"re:any"}).match("anything"), IsNull());
  EXPECT_THAT(config_with({"Linear"}, {"Linear"}).match("anything"), IsNull());
}

TEST(QuantizationConfig, ExactNameBeforeRegexBeforeClass) {
  QuantizationConfig config;
  config.groups = {group_of("class", {"Linear"}), group_of("regex", {"re:a.*"}), group_of("later regex", {"re:ab.*"}),
                   group_of("exact", {"abc"})};
  EXPECT_EQ(config.match("abc")->name, "exact");
  EXPECT_EQ(config.match("abd")->name, "regex");
  EXPECT_EQ(config.match("b")->name, "class");
  EXPECT_EQ(config.match("b"), &config.groups[0]);
}

TEST(QuantizationConfig, PatternsThatDoNotCompileOrNeverEndAreRefused) {
  EXPECT_THAT(error_of([] { config_with({"re:a("}).match("a"); }), HasSubstr("unsupported: pattern \"a(\""));
  EXPECT_THAT(error_of([] { config_with({"re:(a+)+$"}).match(std::string(64, 'a') + "!"); }),
              HasSubstr("unsupported: pattern"));
}

TEST(WriteQuantizedConfig, WritesExactlyTheReferenceStructure) {
  const PackQuantizedSpec spec{.actorder = "static"};
  const std::string written = write_quantized_config(R"({"a": 1})", spec, "config.json");
  EXPECT_EQ(written, R"({"a": 1,
  "quantization_config": {
    "config_groups": {
      "group_0": {
        "format": "pack-quantized",
        "input_activations": null,
        "output_activations": null,
        "targets": [
          "Linear"
        ],
        "weights": {
          "actorder": "static",
          "block_structure": null,
          "dynamic": false,
          "group_size": 64,
          "num_bits": 3,
          "observer": "memoryless_minmax",
          "observer_kwargs": {},
          "scale_dtype": null,
          "strategy": "group",
          "symmetric": true,
          "type": "int",
          "zp_dtype": null
        }
      }
    },
    "format": "pack-quantized",
    "global_compression_ratio": null,
    "ignore": [
      "re:.*self_attn.*",
      "re:.*shared_experts.*",
      "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
      "re:.*lm_head.*",
      "re:.*vision_tower.*",
      "re:.*mm_projector.*",
      "re:.*block_sparse_moe\\.gate$",
      "re:.*block_sparse_moe\\.routed_expert_(up|down)_proj$",
      "re:.*_res_proj$"
    ],
    "kv_cache_scheme": null,
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
    "sparsity_config": {},
    "transform_config": {},
    "version": "0.18.0"
  }
}
)");
}

TEST(WriteQuantizedConfig, VersionTellsTheLayout) {
  const auto version = [](PackedLayout layout) {
    const std::string text = write_quantized_config("{}", {.layout = layout}, "config.json");
    return parse_quantization_configs(text, "config.json").top->version;
  };
  EXPECT_EQ(version(PackedLayout::kDense), "0.18.0");
  EXPECT_EQ(version(PackedLayout::kPadded), "0.17.1");
}

TEST(WriteQuantizedConfig, FourBitsNeverSayActorder) {
  const std::string text = write_quantized_config("{}", {.num_bits = 4, .actorder = "static"}, "config.json");
  const QuantizationConfigs configs = parse_quantization_configs(text, "config.json");
  EXPECT_EQ(configs.top->groups[0].actorder, "");
  EXPECT_EQ(configs.top->groups[0].num_bits, 4);
}

TEST(WriteQuantizedConfig, LeavesOneConfigAndEveryOtherByte) {
  const std::string once = write_quantized_config(tiny_config(), {}, "config.json");
  const QuantizationConfigs configs = parse_quantization_configs(once, "config.json");
  EXPECT_TRUE(configs.top.has_value());
  EXPECT_FALSE(configs.nested.has_value());
  EXPECT_EQ(write_quantized_config(once, {}, "config.json"), once);  // its own output has one to replace

  auto expected = nlohmann::ordered_json::parse(tiny_config());
  expected["text_config"].erase("quantization_config");
  auto rest = nlohmann::ordered_json::parse(once);
  rest.erase("quantization_config");
  EXPECT_EQ(rest.dump(), expected.dump());  // members, order and values
}

TEST(WriteQuantizedConfig, KeepsNumbersAsTheyWereWritten) {
  const std::string source =
      R"({"eps": 1e-05, "e2": 1.0E-5, "big": 123456789012345678901234567890, "long": 0.10000000000000000555, "i": -0,
 "quantization_config" : {"a": ["}", "\"quantization_config\""]} ,
 "t": "\u00e9 \"{", "text_config":{"quantization\u005fconfig":{"x":[1,{}]},"z":1.50}})";
  const std::string written = write_quantized_config(source, {}, "config.json");
  EXPECT_THAT(
      written,
      HasSubstr(
          R"({"eps": 1e-05, "e2": 1.0E-5, "big": 123456789012345678901234567890, "long": 0.10000000000000000555, "i": -0 ,
 "t": "\u00e9 \"{", "text_config":{"z":1.50},
  "quantization_config": {)"));
}

TEST(WriteQuantizedConfig, RemovesAnOnlyAndALastMember) {
  const auto without = [](const std::string& text) {
    const std::string written = write_quantized_config(text, {}, "config.json");
    return written.substr(0, written.find("\n"));
  };
  EXPECT_EQ(without(R"({ "quantization_config": null })"), "{");
  EXPECT_EQ(without(R"({"text_config": {"quantization_config": 7}})"), R"({"text_config": {},)");
  EXPECT_EQ(without(R"({"text_config": {"b":2, "quantization_config": "x" }})"), R"({"text_config": {"b":2 },)");
}

TEST(WriteQuantizedConfig, RefusesWhatIsNotAnObject) {
  EXPECT_THAT(error_of([] { write_quantized_config("[1]", {}, "config.json"); }), HasSubstr("config.json"));
}

// --- the written ignore list against all Linears ---

// Linear module -> has weight_packed. A Linear is anything with a packed weight, or with a .weight that is no norm,
// convolution, embedding or table of positions.
std::map<std::string, bool> linears_of(const CheckpointIndex& index) {
  std::map<std::string, bool> linears;
  for (const CheckpointIndex::Entry& entry : index.entries) {
    const std::string& name = entry.name;
    const size_t dot = name.rfind('.');
    const std::string suffix = name.substr(dot + 1);
    const std::string module = name.substr(0, dot);
    if (suffix == "weight_packed") linears[module] = true;
    if (suffix != "weight") continue;
    static const NamePattern kNotLinear(R"(norm\d?$|conv1d$|embed_tokens$|patch_embed)",
                                        NamePattern::Anchor::kAnywhere);
    if (!kNotLinear.matches(module)) linears[module] = false;
  }
  return linears;
}

std::string alias_of(std::string module) {
  for (const auto& [from, to] : {std::pair{".w1", ".gate_proj"}, {".w3", ".up_proj"}, {".w2", ".down_proj"}}) {
    if (module.ends_with(from)) return module.substr(0, module.size() - 3) + to;
  }
  return module;
}

void expect_config_says_what_is_packed(const std::map<std::string, bool>& linears, size_t expected_packed) {
  const std::string written = write_quantized_config("{}", {}, "config.json");
  const LinearMatcher matcher(*parse_quantization_configs(written, "config.json").top);
  size_t packed = 0;
  for (const auto& [module, is_packed] : linears) {
    packed += is_packed ? 1 : 0;
    ASSERT_EQ(matcher.match(module) != nullptr, is_packed) << module;
    ASSERT_EQ(matcher.match(alias_of(module)) != nullptr, is_packed) << alias_of(module);
  }
  EXPECT_EQ(packed, expected_packed);
}

TEST(WriteQuantizedConfig, SaysWhatIsPackedInTheSmallModel) {
  const fs::path file = testing::tiny_k3_dir() / "model.safetensors.index.json";
  const CheckpointIndex index = parse_index(testing::read_text(file), file.string());
  expect_config_says_what_is_packed(linears_of(index), 4 * 32 * 3);
}

TEST(WriteQuantizedConfig, SaysWhatIsPackedInTheRealModel) {
  TREFOIL_NEED_FIXTURE(file, "kimi-k3-index.json.gz");
  const CheckpointIndex index = parse_index(read_text_stream(file, 1ull << 31), file.string());
  expect_config_says_what_is_packed(linears_of(index), 247'296);
}

TEST(WriteQuantizedConfig, TheReleasesOwnListForgetsLinears) {
  const QuantizationConfig release = *parse_quantization_configs(tiny_config(), "config.json").nested;
  const LinearMatcher matcher(release);
  const std::string layer = "language_model.model.layers.1.";
  EXPECT_THAT(matcher.match(layer + "block_sparse_moe.gate"), NotNull());
  const LinearMatcher written(*parse_quantization_configs(write_quantized_config("{}", {}, "c"), "c").top);
  EXPECT_THAT(written.match(layer + "block_sparse_moe.gate"), IsNull());
  EXPECT_THAT(written.match(layer + "block_sparse_moe.experts.0.gate_proj"), NotNull());
}

}  // namespace
}  // namespace trefoil
