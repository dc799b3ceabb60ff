// Kimi-K3's config.json, nested (text_config) or flat. Every dimension and every switch of the architecture must be
// there: none has a default, and `top_k` (a sampling default) is not the number of experts. The config is a claim;
// src/model checks it against the tensors when it loads them. docs/formats.md, "config.json".
#pragma once

#include <cstdint>
#include <optional>
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
  std::vector<AttentionKind>
      attention;  // by 0-based layer; the config's lists are 1-based and must partition 1..layers
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
  std::vector<int64_t> eos_token_ids;  // may be empty
  int64_t bos_token_id = -1;           // -1 when absent
  int64_t pad_token_id = -1;

  bool is_moe(int64_t layer) const { return layer >= first_k_dense_replace; }
  bool is_kda(int64_t layer) const { return attention[static_cast<size_t>(layer)] == AttentionKind::kKda; }
};

// The vision tower's dimensions (vision_config), as far as the shapes of its tensors depend on them. Names are the
// keys.
struct VisionConfig {
  int64_t patch_size = 0;
  int64_t vt_hidden_size = 0;
  int64_t vt_intermediate_size = 0;
  int64_t vt_num_hidden_layers = 0;
  int64_t vt_num_attention_heads = 0;
  int64_t qkv_hidden_size = 0;
  int64_t init_pos_emb_height = 0;
  int64_t init_pos_emb_width = 0;
  int64_t mm_hidden_size = 0;
  int64_t text_hidden_size = 0;
  std::vector<int64_t> merge_kernel_size;  // [height, width], in patches
};

// Errors (kCorrupt: not JSON, missing key, wrong type, impossible value; kUnsupported: another model family or a
// variant switch this program does not implement) name the file, the key, what was expected and what was found.
ModelConfig parse_model_config(std::string_view json, const std::string& file);
// config.json of a folder; the stop tokens of generation_config.json, if there is one, are added to eos_token_ids.
ModelConfig load_model_config(const fs::path& folder);
// Nothing when the config has no vision_config (a text-only model).
std::optional<VisionConfig> parse_vision_config(std::string_view json, const std::string& file);

}  // namespace trefoil
