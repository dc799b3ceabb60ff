#include "synthetic/synthetic_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/quantization_config.h"
#include "synthetic/vocabulary.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxExperts = 65'536;  // headers of shards stay below the readers' limit
constexpr uint64_t kMaxConfigBytes = 256ull << 20;

struct LayerKind {
  AttentionKind attention = AttentionKind::kKda;
  bool is_dense = false;
};

LayerKind parse_kind(std::string_view text, std::string_view layers) {
  if (text == "kda") return {AttentionKind::kKda, false};
  if (text == "mla") return {AttentionKind::kMla, false};
  if (text == "dense-kda") return {AttentionKind::kKda, true};
  if (text == "dense-mla") return {AttentionKind::kMla, true};
  fail(ErrorCode::kInvalidArgument,
       "layers '{}': '{}' is neither a number of layers nor a kind: kda, mla, dense-kda, dense-mla", layers, text);
}

void set_kinds(ModelConfig& config, std::string_view layers) {
  config.attention.clear();
  config.first_k_dense_replace = 0;
  for (size_t begin = 0; begin <= layers.size();) {
    const size_t end = std::min(layers.find(',', begin), layers.size());
    const LayerKind kind = parse_kind(layers.substr(begin, end - begin), layers);
    if (kind.is_dense) {
      if (config.first_k_dense_replace < static_cast<int64_t>(config.attention.size())) {
        fail(ErrorCode::kInvalidArgument, "layers '{}': dense layers come before all others (first_k_dense_replace)",
             layers);
      }
      ++config.first_k_dense_replace;
    }
    config.attention.push_back(kind.attention);
    begin = end + 1;
  }
}

void keep_first(ModelConfig& config, int64_t count) {
  const auto all = static_cast<int64_t>(config.attention.size());
  if (count < 1 || count > all) {
    fail(ErrorCode::kInvalidArgument, "layers {}: the config has {}; name kinds (kda,mla,...) for more", count, all);
  }
  config.attention.resize(static_cast<size_t>(count));
  config.first_k_dense_replace = std::min(config.first_k_dense_replace, count);
}

void set_layers(ModelConfig& config, const std::string& layers) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(layers.data(), layers.data() + layers.size(), count);
  if (error == std::errc() && end == layers.data() + layers.size()) {
    keep_first(config, count);
  } else if (!layers.empty()) {
    set_kinds(config, layers);
  }
  config.num_hidden_layers = static_cast<int64_t>(config.attention.size());
}

void set_experts(ModelConfig& config, const SynthesizeOptions& options) {
  if (options.num_experts < 0 || options.num_experts > kMaxExperts) {
    fail(ErrorCode::kInvalidArgument, "{} experts: 1 to {} can be made", options.num_experts, kMaxExperts);
  }
  if (options.num_experts > 0) config.num_experts = options.num_experts;
  if (options.num_experts_per_token != 0) config.num_experts_per_token = options.num_experts_per_token;
  if (config.num_experts_per_token < 1 || config.num_experts_per_token > config.num_experts) {
    fail(ErrorCode::kInvalidArgument, "{} experts per token of {} experts", config.num_experts_per_token,
         config.num_experts);
  }
}

void set_vocabulary(ModelConfig& config, int64_t vocab_size) {
  if (vocab_size < kSmallestVocabulary || vocab_size > kLargestVocabulary) {
    fail(ErrorCode::kInvalidArgument, "a vocabulary of {}: {} to {} can be made", vocab_size, kSmallestVocabulary,
         kLargestVocabulary);
  }
  config.vocab_size = vocab_size;
  config.bos_token_id = special_token_id(vocab_size, "[BOS]");
  config.eos_token_ids = {special_token_id(vocab_size, "<|end_of_msg|>")};
  config.pad_token_id = special_token_id(vocab_size, "[PAD]");
}

// Layer numbers of one kind, from 1.
Json layer_list(const ModelConfig& config, AttentionKind kind) {
  Json list = Json::array();
  for (size_t layer = 0; layer < config.attention.size(); ++layer) {
    if (config.attention[layer] == kind) list.push_back(layer + 1);
  }
  return list;
}

Json mxfp4_quantization() {
  const Json weights = {{"actorder", nullptr},
                        {"block_structure", nullptr},
                        {"dynamic", false},
                        {"group_size", kMxfp4GroupSize},
                        {"num_bits", 4},
                        {"observer", "minmax"},
                        {"observer_kwargs", Json::object()},
                        {"scale_dtype", "torch.uint8"},
                        {"strategy", "group"},
                        {"symmetric", true},
                        {"type", "float"},
                        {"zp_dtype", nullptr}};
  const Json group = {{"format", "mxfp4-pack-quantized"},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr},
                      {"targets", {"Linear"}},
                      {"weights", weights}};
  return {{"config_groups", {{"group_0", group}}},
          {"format", "mxfp4-pack-quantized"},
          {"global_compression_ratio", nullptr},
          {"ignore", kimi_k3_ignore_list()},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"}};
}

Json linear_attention(const ModelConfig& config) {
  return {{"full_attn_layers", layer_list(config, AttentionKind::kMla)},
          {"gate_lower_bound", config.gate_lower_bound},
          {"head_dim", config.kda_head_dim},
          {"kda_layers", layer_list(config, AttentionKind::kKda)},
          {"num_heads", config.kda_num_heads},
          {"short_conv_kernel_size", config.short_conv_kernel_size},
          {"use_full_rank_gate", true}};
}

void add_token_ids(Json& object, const ModelConfig& config) {
  object["bos_token_id"] = config.bos_token_id;
  object["eos_token_id"] = config.eos_token_ids.front();
  object["pad_token_id"] = config.pad_token_id;
}

Json text_config(const ModelConfig& config) {
  Json text = {{"architectures", {"KimiLinearForCausalLM"}},
               {"model_type", "kimi_linear"},
               {"dtype", "bfloat16"},
               {"activation_situ_beta", config.activation_situ_beta},
               {"activation_situ_linear_beta", config.activation_situ_linear_beta},
               {"attn_res_block_size", config.attn_res_block_size},
               {"first_k_dense_replace", config.first_k_dense_replace},
               {"hidden_act", "situ"},
               {"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"kv_lora_rank", config.kv_lora_rank},
               {"latent_moe_use_norm", true},
               {"linear_attn_config", linear_attention(config)},
               {"max_position_embeddings", config.max_position_embeddings},
               {"mla_use_nope", true},
               {"mla_use_output_gate", true},
               {"moe_intermediate_size", config.moe_intermediate_size},
               {"moe_layer_freq", 1},
               {"moe_renormalize", true},
               {"moe_router_activation_func", "sigmoid"},
               {"num_attention_heads", config.num_attention_heads},
               {"num_expert_group", 1},
               {"num_experts", config.num_experts},
               {"num_experts_per_token", config.num_experts_per_token},
               {"num_hidden_layers", config.num_hidden_layers},
               {"num_key_value_heads", config.num_attention_heads},
               {"num_nextn_predict_layers", 0},
               {"num_shared_experts", config.num_shared_experts},
               {"q_lora_rank", config.q_lora_rank},
               {"qk_nope_head_dim", config.qk_nope_head_dim},
               {"qk_rope_head_dim", config.qk_rope_head_dim},
               {"quantization_config", mxfp4_quantization()},
               {"rms_norm_eps", config.rms_norm_eps},
               {"routed_expert_hidden_size", config.routed_expert_hidden_size},
               {"routed_scaling_factor", config.routed_scaling_factor},
               {"tie_word_embeddings", false},
               {"topk_group", 1},
               {"topk_method", "noaux_tc"},
               {"use_grouped_topk", true},
               {"v_head_dim", config.v_head_dim},
               {"vocab_size", config.vocab_size}};
  add_token_ids(text, config);
  return text;
}

}  // namespace

ModelConfig kimi_k3_config() {
  constexpr int64_t kLayers = 93;
  ModelConfig config;
  config.model_type = "kimi_linear";
  config.hidden_size = 7168;
  config.num_hidden_layers = kLayers;
  config.intermediate_size = 33792;
  config.first_k_dense_replace = 1;
  config.num_attention_heads = 96;
  config.q_lora_rank = 1536;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.v_head_dim = 128;
  config.kda_num_heads = 96;
  config.kda_head_dim = 128;
  config.short_conv_kernel_size = 4;
  config.gate_lower_bound = -5.0;
  for (int64_t number = 1; number <= kLayers; ++number) {  // every fourth layer and the last
    config.attention.push_back(number % 4 == 0 || number == kLayers ? AttentionKind::kMla : AttentionKind::kKda);
  }
  config.num_experts = 896;
  config.num_experts_per_token = 16;
  config.num_shared_experts = 2;
  config.moe_intermediate_size = 3072;
  config.routed_expert_hidden_size = 3584;
  config.routed_scaling_factor = 1.0;
  config.activation_situ_beta = 4.0;
  config.activation_situ_linear_beta = 25.0;
  config.attn_res_block_size = 12;
  config.rms_norm_eps = 1e-5;
  config.max_position_embeddings = 1048576;
  return config;
}

ModelConfig synthetic_config(const SynthesizeOptions& options) {
  const bool is_release = options.config.empty();
  ModelConfig config =
      is_release ? kimi_k3_config()
                 : parse_model_config(read_text_file(options.config, kMaxConfigBytes), options.config.string());
  set_layers(config, options.layers);
  set_experts(config, options);
  set_vocabulary(config, options.vocab_size);
  return config;
}

std::string write_synthetic_config(const ModelConfig& config) {
  Json top = {{"architectures", {"KimiK3ForConditionalGeneration"}},
              {"model_type", "kimi_k3"},
              {"dtype", "bfloat16"},
              {"tie_word_embeddings", false}};
  add_token_ids(top, config);
  top["text_config"] = text_config(config);
  return top.dump(2) + "\n";
}

std::string write_generation_config(const ModelConfig& config) {
  const Json generation = {{"max_length", config.max_position_embeddings},
                           {"eos_token_id", config.eos_token_ids.front()}};
  return generation.dump(2) + "\n";
}

}  // namespace trefoil
