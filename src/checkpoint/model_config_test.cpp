#include "checkpoint/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/test_support.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Edit = std::function<void(nlohmann::ordered_json&)>;

std::string tiny_config() {
  return testing::read_text(testing::tiny_k3_dir() / "config.json");
}

std::string edited(const Edit& edit) {
  auto json = nlohmann::ordered_json::parse(tiny_config());
  edit(json);
  return json.dump();
}

// The error of parsing, as "code: message"; empty when it parses.
std::string refusal(const std::string& text) {
  try {
    parse_model_config(text, "config.json");
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "";
}

std::string refusal(const Edit& edit) {
  return refusal(edited(edit));
}

std::vector<int64_t> mla_layers(const ModelConfig& config) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.is_kda(layer)) layers.push_back(layer);
  }
  return layers;
}

TEST(ModelConfig, ReadsTheSmallModel) {
  const ModelConfig config = parse_model_config(tiny_config(), "config.json");
  EXPECT_EQ(config.model_type, "kimi_linear");
  EXPECT_EQ(config.vocab_size, 4096);
  EXPECT_EQ(config.hidden_size, 256);
  EXPECT_EQ(config.num_hidden_layers, 5);
  EXPECT_EQ(config.intermediate_size, 512);
  EXPECT_EQ(config.first_k_dense_replace, 1);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.q_lora_rank, 96);
  EXPECT_EQ(config.kv_lora_rank, 64);
  EXPECT_EQ(config.qk_nope_head_dim, 32);
  EXPECT_EQ(config.qk_rope_head_dim, 16);
  EXPECT_EQ(config.v_head_dim, 32);
  EXPECT_EQ(config.kda_num_heads, 4);
  EXPECT_EQ(config.kda_head_dim, 64);
  EXPECT_EQ(config.short_conv_kernel_size, 4);
  EXPECT_EQ(config.gate_lower_bound, -5.0);
  EXPECT_EQ(config.num_experts, 32);
  EXPECT_EQ(config.num_experts_per_token, 4);  // the file also says top_k: 50
  EXPECT_EQ(config.num_shared_experts, 2);
  EXPECT_EQ(config.moe_intermediate_size, 192);
  EXPECT_EQ(config.routed_expert_hidden_size, 128);
  EXPECT_EQ(config.routed_scaling_factor, 1.0);
  EXPECT_EQ(config.activation_situ_beta, 4.0);
  EXPECT_EQ(config.activation_situ_linear_beta, 25.0);
  EXPECT_EQ(config.attn_res_block_size, 2);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.max_position_embeddings, 1048576);
  EXPECT_EQ(config.bos_token_id, 3840);
  EXPECT_EQ(config.pad_token_id, 4095);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(3842));
  EXPECT_FALSE(config.is_moe(0));
  EXPECT_TRUE(config.is_moe(1));
}

TEST(ModelConfig, LayerListsCountFromOne) {
  EXPECT_THAT(mla_layers(parse_model_config(tiny_config(), "config.json")), ElementsAre(3, 4));
}

TEST(ModelConfig, ReadsTheRealModel) {
  TREFOIL_NEED_FIXTURE(file, "kimi-k3-config.json");
  const ModelConfig config = parse_model_config(testing::read_text(file), file.string());
  EXPECT_EQ(config.hidden_size, 7168);
  EXPECT_EQ(config.num_hidden_layers, 93);
  EXPECT_EQ(config.num_experts, 896);
  EXPECT_EQ(config.num_experts_per_token, 16);
  EXPECT_EQ(config.routed_expert_hidden_size, 3584);
  const std::vector<int64_t> mla = mla_layers(config);
  ASSERT_EQ(mla.size(), 24u);
  EXPECT_EQ(mla.front(), 3);
  EXPECT_EQ(mla[22], 91);
  EXPECT_EQ(mla[23], 92);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(163586));
  const auto vision = parse_vision_config(testing::read_text(file), file.string());
  ASSERT_TRUE(vision.has_value());
  EXPECT_EQ(vision->vt_num_hidden_layers, 27);
  EXPECT_EQ(vision->qkv_hidden_size, 1536);
}

TEST(ModelConfig, ReadsAFlatTextConfig) {
  const auto json = nlohmann::ordered_json::parse(tiny_config());
  const ModelConfig flat = parse_model_config(json["text_config"].dump(), "config.json");
  EXPECT_EQ(flat.hidden_size, 256);
  EXPECT_EQ(flat.attention.size(), 5u);
  EXPECT_FALSE(parse_vision_config(json["text_config"].dump(), "config.json").has_value());
}

TEST(ModelConfig, HasNoDefaultForAnythingTheModelDependsOn) {
  const std::vector<std::string> keys = {"vocab_size",
                                         "hidden_size",
                                         "num_hidden_layers",
                                         "intermediate_size",
                                         "first_k_dense_replace",
                                         "moe_layer_freq",
                                         "num_attention_heads",
                                         "num_key_value_heads",
                                         "q_lora_rank",
                                         "kv_lora_rank",
                                         "qk_nope_head_dim",
                                         "qk_rope_head_dim",
                                         "v_head_dim",
                                         "num_experts",
                                         "num_experts_per_token",
                                         "num_shared_experts",
                                         "moe_intermediate_size",
                                         "routed_expert_hidden_size",
                                         "routed_scaling_factor",
                                         "activation_situ_beta",
                                         "activation_situ_linear_beta",
                                         "attn_res_block_size",
                                         "rms_norm_eps",
                                         "max_position_embeddings",
                                         "hidden_act",
                                         "moe_router_activation_func",
                                         "topk_method",
                                         "mla_use_nope",
                                         "mla_use_output_gate",
                                         "latent_moe_use_norm",
                                         "moe_renormalize",
                                         "num_expert_group",
                                         "topk_group",
                                         "num_nextn_predict_layers",
                                         "linear_attn_config",
                                         "model_type"};
  for (const std::string& key : keys) {
    EXPECT_THAT(refusal([&](auto& json) { json["text_config"].erase(key); }),
                HasSubstr("text_config." + key + " is missing"));
  }
  for (const std::string key : {"num_heads", "head_dim", "short_conv_kernel_size", "gate_lower_bound", "kda_layers",
                                "full_attn_layers", "use_full_rank_gate"}) {
    EXPECT_THAT(refusal([&](auto& json) { json["text_config"]["linear_attn_config"].erase(key); }),
                HasSubstr("text_config.linear_attn_config." + key + " is missing"));
  }
}

TEST(ModelConfig, RefusesEveryVariantByKeyExpectedAndFound) {
  const std::vector<std::pair<std::string, nlohmann::ordered_json>> switches = {
      {"mla_use_nope", false},
      {"mla_use_output_gate", false},
      {"latent_moe_use_norm", false},
      {"moe_renormalize", false},
      {"moe_router_activation_func", "softmax"},
      {"hidden_act", "silu"},
      {"topk_method", "greedy"},
      {"num_expert_group", 8},
      {"topk_group", 4},
      {"moe_layer_freq", 2},
      {"num_nextn_predict_layers", 1},
      {"tie_word_embeddings", true},
      {"num_key_value_heads", 2},
      {"model_type", "deepseek_v3"},
  };
  for (const auto& [key, value] : switches) {
    const std::string found = value.is_string() ? value.template get<std::string>() : value.dump();
    EXPECT_THAT(refusal([&, k = key, v = value](auto& json) { json["text_config"][k] = v; }),
                AllOf(HasSubstr("unsupported"), HasSubstr("text_config." + key), HasSubstr(found)));
  }
  EXPECT_THAT(refusal([](auto& json) { json["text_config"]["linear_attn_config"]["use_full_rank_gate"] = false; }),
              HasSubstr("linear_attn_config.use_full_rank_gate"));
}

TEST(ModelConfig, RefusesAnotherFamilyAtOnce) {
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_size": 4096})"),
              AllOf(HasSubstr("model_type"), HasSubstr("llama")));
  EXPECT_THAT(refusal([](auto& json) { json["architectures"] = {"KimiK25ForConditionalGeneration"}; }),
              AllOf(HasSubstr("architectures"), HasSubstr("KimiK25")));
}

TEST(ModelConfig, LayerListsMustPartitionTheLayers) {
  const auto lists = [](std::vector<int> kda, std::vector<int> full) {
    return refusal([&](auto& json) {
      json["text_config"]["linear_attn_config"]["kda_layers"] = kda;
      json["text_config"]["linear_attn_config"]["full_attn_layers"] = full;
    });
  };
  EXPECT_EQ(lists({1, 2, 3}, {4, 5}), "");
  EXPECT_EQ(lists({5, 1, 4}, {2, 3}), "");
  EXPECT_THAT(lists({0, 1, 2}, {3, 4}), HasSubstr("layer 0"));  // counted from zero
  EXPECT_THAT(lists({1, 2, 3}, {4}), HasSubstr("name 4 layers"));
  EXPECT_THAT(lists({1, 2, 3}, {3, 4}), HasSubstr("layer 3 is listed twice"));
  EXPECT_THAT(lists({1, 2, 3}, {4, 6}), HasSubstr("layer 6"));
}

TEST(ModelConfig, RefusesImpossibleDimensions) {
  const auto with = [](const std::string& key, const nlohmann::ordered_json& value) {
    return refusal([&](auto& json) { json["text_config"][key] = value; });
  };
  EXPECT_THAT(with("hidden_size", 0), HasSubstr("hidden_size"));
  EXPECT_THAT(with("hidden_size", -256), HasSubstr("hidden_size"));
  EXPECT_THAT(with("hidden_size", 256.0), HasSubstr("whole number"));
  EXPECT_THAT(with("hidden_size", "256"), HasSubstr("whole number"));
  EXPECT_THAT(with("hidden_size", 18446744073709551615u), HasSubstr("hidden_size"));
  EXPECT_THAT(with("num_hidden_layers", 2147483647), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(with("num_experts_per_token", 33), HasSubstr("from 1 to 32"));
  EXPECT_THAT(with("first_k_dense_replace", 6), HasSubstr("first_k_dense_replace"));
  EXPECT_THAT(with("rms_norm_eps", 0), HasSubstr("above 0"));
  EXPECT_THAT(with("eos_token_id", 4096), HasSubstr("eos_token_id"));
}

TEST(ModelConfig, RefusesWhatIsNotOneJsonObject) {
  for (const std::string text : {"", "[]", "1", "{", "{\"model_type\": }", "{} {}"}) {
    EXPECT_THAT(refusal(text), HasSubstr("config.json")) << text;
  }
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(R"({"model_type": "kimi_k3", "model_type": "kimi_k3"})"), HasSubstr("occurs twice"));
  EXPECT_THAT(refusal(R"({"model_type": 1e999})"), HasSubstr("config.json"));
}

TEST(ModelConfig, EveryTruncationIsRefused) {
  const std::string whole = tiny_config();
  for (size_t size = 0; size < whole.rfind('}'); ++size) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
}

TEST(ModelConfig, StopTokensComeFromBothFiles) {
  const testing::TempDir folder;
  testing::write_text(folder.path() / "config.json", tiny_config());
  EXPECT_THAT(load_model_config(folder.path()).eos_token_ids, ElementsAre(3842));
  testing::write_text(folder.path() / "generation_config.json", R"({"eos_token_id": [3842, 3841]})");
  EXPECT_THAT(load_model_config(folder.path()).eos_token_ids, ElementsAre(3842, 3841));
}

}  // namespace
}  // namespace trefoil
