// Kimi-K3's config.json, nested (text_config) or flat. Every dimension must be there: none has a default.
// The config is a claim; src/model checks it against the tensors when it loads them. docs/formats.md, "config.json".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.h"

namespace trefoil {

enum class AttentionKind { kKda, kMla };

// Names are the config's keys.
struct ModelConfig {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t intermediate_size = 0;  // dense MLP of the first layers
  int64_t first_k_dense_replace = 0;
  int64_t moe_layer_freq = 1;
  // MLA
  int64_t num_attention_heads = 0;
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  // KDA (linear_attn_config)
  int64_t kda_num_heads = 0;
  int64_t kda_head_dim = 0;
  int64_t short_conv_kernel_size = 0;
  double gate_lower_bound = 0;
  std::vector<AttentionKind> attention;  // by 0-based layer; the config's lists are 1-based and must partition 1..layers
  // MoE
  int64_t num_experts = 0;
  int64_t num_experts_per_token = 0;
  int64_t num_shared_experts = 0;
  int64_t moe_intermediate_size = 0;
  int64_t routed_expert_hidden_size = 0;
  double routed_scaling_factor = 0;
  // everything else
  double activation_situ_beta = 0;
  double activation_situ_linear_beta = 0;
  int64_t attn_res_block_size = 0;
  double rms_norm_eps = 0;
  int64_t max_position_embeddings = 0;
  std::vector<int64_t> eos_token_ids;
  int64_t bos_token_id = -1;
  int64_t pad_token_id = -1;

  bool is_moe(int64_t layer) const { return layer >= first_k_dense_replace; }
  bool is_kda(int64_t layer) const { return attention[static_cast<size_t>(layer)] == AttentionKind::kKda; }
};

// Errors (kCorrupt: not JSON, missing key, wrong type, impossible value; kUnsupported: another model family or a variant
// switch this program does not implement) name the file and the key.
ModelConfig parse_model_config(std::string_view json, const std::string& file);
ModelConfig load_model_config(const fs::path& folder);

}  // namespace trefoil
