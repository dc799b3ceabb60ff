#include "checkpoint/model_config.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/json_object.h"

namespace trefoil {
namespace {

// A dimension is at most 2^30, so that products of two of them, or of one and a sum of two, fit in 63 bits.
constexpr int64_t kMaxDimension = int64_t{1} << 30;
// config.json is kilobytes; one with an exact ignore list of every Linear is some tens of megabytes.
constexpr uint64_t kMaxConfigBytes = 256ull << 20;

// --- which model this is ---

[[noreturn]] void refuse_variant(const JsonObject& object, std::string_view key, std::string_view expected,
                                 std::string_view found) {
  fail(ErrorCode::kUnsupported, "{}: {}: this program runs Kimi-K3, which has {}; found {}", object.file(),
       object.path_of(key), expected, found);
}

void expect_one_of(const JsonObject& object, std::string_view key, std::initializer_list<std::string_view> known) {
  const std::string found = object.text(key);
  if (std::find(known.begin(), known.end(), found) != known.end()) return;
  refuse_variant(object, key, fmt::format("\"{}\"", fmt::join(known, "\" or \"")), fmt::format("\"{}\"", found));
}

void expect_architecture(const JsonObject& object, std::initializer_list<std::string_view> known) {
  if (object.find("architectures") == nullptr) return;  // parts of a model are saved without
  const std::vector<std::string> found = object.texts("architectures");
  const bool ok = std::any_of(found.begin(), found.end(), [&](const std::string& name) {
    return std::find(known.begin(), known.end(), name) != known.end();
  });
  if (!ok) {
    refuse_variant(object, "architectures", fmt::format("{}", fmt::join(known, " or ")),
                   fmt::format("[{}]", fmt::join(found, ", ")));
  }
}

void expect_boolean(const JsonObject& object, std::string_view key, bool expected) {
  if (object.boolean(key) != expected) {
    refuse_variant(object, key, expected ? "true" : "false", expected ? "false" : "true");
  }
}

void expect_integer(const JsonObject& object, std::string_view key, int64_t expected) {
  const int64_t found = object.integer(key, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (found != expected) refuse_variant(object, key, fmt::format("{}", expected), fmt::format("{}", found));
}

// The switches of the architecture. Each must be there: what an absent one means differs between releases.
void check_variant(const JsonObject& text, const JsonObject& linear_attn) {
  expect_one_of(text, "hidden_act", {"situ"});
  expect_one_of(text, "moe_router_activation_func", {"sigmoid"});
  expect_one_of(text, "topk_method", {"noaux_tc"});
  expect_boolean(text, "mla_use_nope", true);
  expect_boolean(text, "mla_use_output_gate", true);
  expect_boolean(text, "latent_moe_use_norm", true);
  expect_boolean(text, "moe_renormalize", true);
  expect_boolean(linear_attn, "use_full_rank_gate", true);
  expect_integer(text, "num_expert_group", 1);
  expect_integer(text, "topk_group", 1);
  expect_integer(text, "moe_layer_freq", 1);
  expect_integer(text, "num_nextn_predict_layers", 0);
}

// Stands at the top, in text_config, or both.
void check_untied(const JsonObject& top, const JsonObject& text) {
  bool found = false;
  for (const JsonObject* object : {&top, &text}) {
    if (object->find("tie_word_embeddings") == nullptr) continue;
    expect_boolean(*object, "tie_word_embeddings", false);
    found = true;
  }
  if (!found) static_cast<void>(text.demand("tie_word_embeddings"));
}

// --- its dimensions ---

int64_t dimension(const JsonObject& object, std::string_view key) {
  return object.integer(key, 1, kMaxDimension);
}

void read_dimensions(const JsonObject& text, ModelConfig& config) {
  config.vocab_size = dimension(text, "vocab_size");
  config.hidden_size = dimension(text, "hidden_size");
  config.num_hidden_layers = dimension(text, "num_hidden_layers");
  config.intermediate_size = dimension(text, "intermediate_size");
  config.first_k_dense_replace = text.integer("first_k_dense_replace", 0, config.num_hidden_layers);
  config.moe_layer_freq = dimension(text, "moe_layer_freq");
  config.num_attention_heads = dimension(text, "num_attention_heads");
  expect_integer(text, "num_key_value_heads", config.num_attention_heads);
  config.q_lora_rank = dimension(text, "q_lora_rank");
  config.kv_lora_rank = dimension(text, "kv_lora_rank");
  config.qk_nope_head_dim = dimension(text, "qk_nope_head_dim");
  config.qk_rope_head_dim = dimension(text, "qk_rope_head_dim");
  config.v_head_dim = dimension(text, "v_head_dim");
  config.num_experts = dimension(text, "num_experts");
  config.num_experts_per_token = text.integer("num_experts_per_token", 1, config.num_experts);  // never `top_k`
  config.num_shared_experts = dimension(text, "num_shared_experts");
  config.moe_intermediate_size = dimension(text, "moe_intermediate_size");
  config.routed_expert_hidden_size = dimension(text, "routed_expert_hidden_size");
  config.attn_res_block_size = dimension(text, "attn_res_block_size");
  config.max_position_embeddings = dimension(text, "max_position_embeddings");
}

double positive(const JsonObject& object, std::string_view key) {
  const double value = object.number(key);
  if (!(value > 0)) object.refuse(key, "a number above 0", object.demand(key));
  return value;
}

void read_constants(const JsonObject& text, const JsonObject& linear_attn, ModelConfig& config) {
  config.routed_scaling_factor = positive(text, "routed_scaling_factor");
  config.activation_situ_beta = positive(text, "activation_situ_beta");
  config.activation_situ_linear_beta = positive(text, "activation_situ_linear_beta");
  config.rms_norm_eps = positive(text, "rms_norm_eps");
  config.gate_lower_bound = linear_attn.number("gate_lower_bound");
  if (!(config.gate_lower_bound < 0)) {
    linear_attn.refuse("gate_lower_bound", "a number below 0", linear_attn.demand("gate_lower_bound"));
  }
}

// --- which layer attends how ---

void mark_layers(const JsonObject& linear_attn, std::string_view key, AttentionKind kind,
                 std::vector<std::optional<AttentionKind>>& layers) {
  const auto count = static_cast<int64_t>(layers.size());
  for (const int64_t number : linear_attn.integers(key)) {
    if (number < 1 || number > count) {
      fail(ErrorCode::kCorrupt, "{}: {}: layer {} (layers are numbered from 1 to {})", linear_attn.file(),
           linear_attn.path_of(key), number, count);
    }
    std::optional<AttentionKind>& layer = layers[static_cast<size_t>(number - 1)];
    if (layer.has_value()) {
      fail(ErrorCode::kCorrupt,
           "{}: {}: layer {} is listed twice (kda_layers and full_attn_layers together name each "
           "layer once)",
           linear_attn.file(), linear_attn.path_of(key), number);
    }
    layer = kind;
  }
}

std::vector<AttentionKind> read_attention(const JsonObject& linear_attn, int64_t num_hidden_layers) {
  const size_t listed = linear_attn.demand("kda_layers").size() + linear_attn.demand("full_attn_layers").size();
  if (static_cast<int64_t>(listed) != num_hidden_layers) {  // also bounds the allocation below by the file's size
    fail(ErrorCode::kCorrupt, "{}: {} and full_attn_layers name {} layers, num_hidden_layers is {}", linear_attn.file(),
         linear_attn.path_of("kda_layers"), listed, num_hidden_layers);
  }
  std::vector<std::optional<AttentionKind>> layers(listed);
  mark_layers(linear_attn, "kda_layers", AttentionKind::kKda, layers);
  mark_layers(linear_attn, "full_attn_layers", AttentionKind::kMla, layers);
  std::vector<AttentionKind> attention;  // as many distinct numbers as layers: every one is marked
  attention.reserve(listed);
  for (const auto& layer : layers) attention.push_back(*layer);
  return attention;
}

// --- token ids ---

int64_t optional_id(const JsonObject& object, std::string_view key, int64_t vocab_size) {
  return object.find(key) == nullptr ? -1 : object.integer(key, 0, vocab_size - 1);
}

// eos_token_id is a number, a list of numbers, null or absent. Ids already there are not repeated.
void add_eos_ids(const JsonObject& object, int64_t vocab_size, std::vector<int64_t>& ids) {
  const Json* value = object.find("eos_token_id");
  if (value == nullptr) return;
  const std::vector<int64_t> found = value->is_array()
                                         ? object.integers("eos_token_id")
                                         : std::vector<int64_t>{object.integer("eos_token_id", 0, vocab_size - 1)};
  for (const int64_t id : found) {
    if (id < 0 || id >= vocab_size) object.refuse("eos_token_id", fmt::format("ids below {}", vocab_size), *value);
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

}  // namespace

ModelConfig parse_model_config(std::string_view json, const std::string& file) {
  const Json document = parse_strict_json(json, file);
  const JsonObject top(document, "", file);
  const bool nested = top.find("text_config") != nullptr;
  expect_one_of(top, "model_type",
                nested ? std::initializer_list<std::string_view>{"kimi_k3"}
                       : std::initializer_list<std::string_view>{"kimi_linear", "kimi_k3"});
  expect_architecture(top, {"KimiK3ForConditionalGeneration", "KimiLinearForCausalLM"});
  const JsonObject text = nested ? top.object("text_config") : top;
  if (nested) {
    expect_one_of(text, "model_type", {"kimi_linear"});
    expect_architecture(text, {"KimiLinearForCausalLM"});
  }
  const JsonObject linear_attn = text.object("linear_attn_config");

  check_variant(text, linear_attn);
  check_untied(top, text);
  ModelConfig config;
  config.model_type = text.text("model_type");
  read_dimensions(text, config);
  read_constants(text, linear_attn, config);
  config.kda_num_heads = dimension(linear_attn, "num_heads");
  config.kda_head_dim = dimension(linear_attn, "head_dim");
  config.short_conv_kernel_size = dimension(linear_attn, "short_conv_kernel_size");
  config.attention = read_attention(linear_attn, config.num_hidden_layers);

  add_eos_ids(text, config.vocab_size, config.eos_token_ids);
  add_eos_ids(top, config.vocab_size, config.eos_token_ids);
  config.bos_token_id = optional_id(text, "bos_token_id", config.vocab_size);
  config.pad_token_id = optional_id(text, "pad_token_id", config.vocab_size);
  return config;
}

ModelConfig load_model_config(const fs::path& folder) {
  const fs::path file = folder / kConfigFile;
  ModelConfig config = parse_model_config(read_text_file(file, kMaxConfigBytes), file.string());
  const fs::path generation = folder / "generation_config.json";
  if (fs::exists(generation)) {
    const Json document = parse_strict_json(read_text_file(generation, kMaxConfigBytes), generation.string());
    add_eos_ids(JsonObject(document, "", generation.string()), config.vocab_size, config.eos_token_ids);
  }
  return config;
}

std::optional<VisionConfig> parse_vision_config(std::string_view json, const std::string& file) {
  const Json document = parse_strict_json(json, file);
  const JsonObject top(document, "", file);
  if (top.find("vision_config") == nullptr) return std::nullopt;
  const JsonObject vision = top.object("vision_config");
  VisionConfig config;
  config.patch_size = dimension(vision, "patch_size");
  config.vt_hidden_size = dimension(vision, "vt_hidden_size");
  config.vt_intermediate_size = dimension(vision, "vt_intermediate_size");
  config.vt_num_hidden_layers = dimension(vision, "vt_num_hidden_layers");
  config.vt_num_attention_heads = dimension(vision, "vt_num_attention_heads");
  config.qkv_hidden_size = dimension(vision, "qkv_hidden_size");
  config.init_pos_emb_height = dimension(vision, "init_pos_emb_height");
  config.init_pos_emb_width = dimension(vision, "init_pos_emb_width");
  config.mm_hidden_size = dimension(vision, "mm_hidden_size");
  config.text_hidden_size = dimension(vision, "text_hidden_size");
  config.merge_kernel_size = vision.integers("merge_kernel_size");
  const auto fits = [](int64_t size) { return size >= 1 && size <= 1024; };
  if (config.merge_kernel_size.size() != 2 ||
      !std::all_of(config.merge_kernel_size.begin(), config.merge_kernel_size.end(), fits)) {
    vision.refuse("merge_kernel_size", "two whole numbers from 1 to 1024", vision.demand("merge_kernel_size"));
  }
  return config;
}

}  // namespace trefoil
