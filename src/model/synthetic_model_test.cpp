// The parts of synthetic_test_model.h, and a check that they make a model that runs.
#include <gtest/gtest.h>

#include <cmath>

#include "model/model.h"
#include "model/synthetic_test_model.h"
#include "tensor/bf16.h"

namespace trefoil::testing {
namespace {

void add_kda(const ModelConfig& config, const std::string& p, std::vector<NamedShape>& all) {
  const int64_t hidden = config.hidden_size;
  const int64_t dim = config.kda_head_dim;
  const int64_t channels = config.kda_num_heads * dim;
  for (const char* name : {"q_proj", "k_proj", "v_proj", "g_proj"})
    all.push_back({p + name + ".weight", {channels, hidden}});
  for (const char* name : {"q_conv1d", "k_conv1d", "v_conv1d"}) {
    all.push_back({p + name + ".weight", {channels, 1, config.short_conv_kernel_size}});
  }
  all.push_back({p + "f_a_proj.weight", {dim, hidden}});
  all.push_back({p + "f_b_proj.weight", {channels, dim}});
  all.push_back({p + "b_proj.weight", {config.kda_num_heads, hidden}});
  all.push_back({p + "A_log", {config.kda_num_heads}});
  all.push_back({p + "dt_bias", {channels}});
  all.push_back({p + "o_norm.weight", {dim}});
  all.push_back({p + "o_proj.weight", {hidden, channels}});
}

void add_mla(const ModelConfig& config, const std::string& p, std::vector<NamedShape>& all) {
  const int64_t hidden = config.hidden_size;
  const int64_t heads = config.num_attention_heads;
  const int64_t nope = config.qk_nope_head_dim, rope = config.qk_rope_head_dim, value = config.v_head_dim;
  all.push_back({p + "q_a_proj.weight", {config.q_lora_rank, hidden}});
  all.push_back({p + "q_a_layernorm.weight", {config.q_lora_rank}});
  all.push_back({p + "q_b_proj.weight", {heads * (nope + rope), config.q_lora_rank}});
  all.push_back({p + "kv_a_proj_with_mqa.weight", {config.kv_lora_rank + rope, hidden}});
  all.push_back({p + "kv_a_layernorm.weight", {config.kv_lora_rank}});
  all.push_back({p + "kv_b_proj.weight", {heads * (nope + value), config.kv_lora_rank}});
  all.push_back({p + "g_proj.weight", {heads * value, hidden}});
  all.push_back({p + "o_proj.weight", {hidden, heads * value}});
}

void add_mlp(const std::string& p, int64_t hidden, int64_t inner, std::vector<NamedShape>& all) {
  all.push_back({p + "gate_proj.weight", {inner, hidden}});
  all.push_back({p + "up_proj.weight", {inner, hidden}});
  all.push_back({p + "down_proj.weight", {hidden, inner}});
}

void add_moe(const ModelConfig& config, const std::string& p, std::vector<NamedShape>& all) {
  const int64_t hidden = config.hidden_size;
  const int64_t latent = config.routed_expert_hidden_size;
  const int64_t inner = config.moe_intermediate_size;
  all.push_back({p + "gate.weight", {config.num_experts, hidden}});
  all.push_back({p + "gate.e_score_correction_bias", {config.num_experts}});
  all.push_back({p + "routed_expert_down_proj.weight", {latent, hidden}});
  all.push_back({p + "routed_expert_up_proj.weight", {hidden, latent}});
  all.push_back({p + "routed_expert_norm.weight", {latent}});
  add_mlp(p + "shared_experts.", hidden, config.num_shared_experts * inner, all);
  for (int64_t e = 0; e < config.num_experts; ++e) {
    const std::string expert = p + "experts." + std::to_string(e) + ".";
    all.push_back({expert + "w1.weight", {inner, latent}});
    all.push_back({expert + "w2.weight", {latent, inner}});
    all.push_back({expert + "w3.weight", {inner, latent}});
  }
}

bool is_norm(const std::string& name) {
  return name.ends_with("norm.weight");
}

std::vector<float> random_tensor(const NamedShape& tensor, int64_t size, Random& random) {
  std::vector<float> values;
  if (tensor.name.ends_with("A_log")) {
    values = random.vector(size, 1, 16);
    for (float& value : values) value = std::log(value);
    return values;  // an F32 family: not rounded
  }
  if (tensor.name.ends_with("dt_bias")) return random.vector(size, -4, 1);
  if (tensor.name.ends_with("e_score_correction_bias")) return random.vector(size, -0.1f, 0.1f);
  if (is_norm(tensor.name)) {
    values = random.vector(size, 0.8f, 1.2f);
  } else if (tensor.name.ends_with("conv1d.weight")) {
    values = random.vector(size, -0.7f, 0.7f);
  } else {
    const float bound =
        std::sqrt(3.0f / static_cast<float>(tensor.shape.back()));  // unit variance in, unit variance out
    values = random.vector(size, -bound, bound);
  }
  for (float& value : values) value = round_to_bf16(value);
  return values;
}

}  // namespace

std::vector<NamedShape> text_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  std::vector<NamedShape> all = {{"model.embed_tokens.weight", {config.vocab_size, hidden}},
                                 {"lm_head.weight", {config.vocab_size, hidden}},
                                 {"model.norm.weight", {hidden}},
                                 {"model.output_attn_res_norm.weight", {hidden}},
                                 {"model.output_attn_res_proj.weight", {1, hidden}}};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    for (const char* name :
         {"input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"}) {
      all.push_back({p + name + ".weight", {hidden}});
    }
    all.push_back({p + "self_attention_res_proj.weight", {1, hidden}});
    all.push_back({p + "mlp_res_proj.weight", {1, hidden}});
    config.is_kda(layer) ? add_kda(config, p + "self_attn.", all) : add_mla(config, p + "self_attn.", all);
    config.is_moe(layer) ? add_moe(config, p + "block_sparse_moe.", all)
                         : add_mlp(p + "mlp.", hidden, config.intermediate_size, all);
  }
  return all;
}

std::shared_ptr<MemoryWeights> make_weights(const ModelConfig& config, const FillTensor& fill) {
  auto weights = std::make_shared<MemoryWeights>();
  for (const NamedShape& tensor : text_tensors(config)) {
    int64_t size = 1;
    for (const int64_t dim : tensor.shape) size *= dim;
    weights->set(tensor.name, tensor.shape, fill(tensor.name, size));
  }
  return weights;
}

std::shared_ptr<MemoryWeights> random_weights(const ModelConfig& config, uint64_t seed) {
  auto weights = std::make_shared<MemoryWeights>();
  Random random(seed);
  for (const NamedShape& tensor : text_tensors(config)) {
    int64_t size = 1;
    for (const int64_t dim : tensor.shape) size *= dim;
    weights->set(tensor.name, tensor.shape, random_tensor(tensor, size, random));
  }
  return weights;
}

ModelConfig small_config(int64_t layers) {
  ModelConfig config;
  config.model_type = "kimi_linear";
  config.vocab_size = 61;
  config.hidden_size = 40;
  config.num_hidden_layers = layers;
  config.intermediate_size = 56;
  config.first_k_dense_replace = 1;
  config.num_attention_heads = 3;
  config.q_lora_rank = 20;
  config.kv_lora_rank = 12;
  config.qk_nope_head_dim = 10;
  config.qk_rope_head_dim = 6;
  config.v_head_dim = 14;
  config.kda_num_heads = 3;
  config.kda_head_dim = 16;
  config.short_conv_kernel_size = 4;
  config.gate_lower_bound = -5;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool mla = layer % 4 == 3 || layer + 1 == layers;
    config.attention.push_back(mla ? AttentionKind::kMla : AttentionKind::kKda);
  }
  config.num_experts = 12;
  config.num_experts_per_token = 3;
  config.num_shared_experts = 2;
  config.moe_intermediate_size = 18;
  config.routed_expert_hidden_size = 22;
  config.routed_scaling_factor = 1;
  config.activation_situ_beta = 4;
  config.activation_situ_linear_beta = 25;
  config.attn_res_block_size = 2;
  config.rms_norm_eps = 1e-5;
  config.max_position_embeddings = 4096;
  config.eos_token_ids = {60};
  return config;
}

namespace {

TEST(SyntheticModel, RunsAndSaysSomethingFinite) {
  ThreadPool pool(1);
  const ModelConfig config = small_config(5);
  const Model model(config, random_weights(config, 1), {.numerics = Numerics::kF32}, pool);
  SequenceState state = model.new_sequence();
  const std::vector<float> logits = model.forward(random_ids(config, 9, 2), state);
  EXPECT_EQ(logits.size(), static_cast<size_t>(9 * config.vocab_size));
  EXPECT_EQ(state.position, 9);
}

}  // namespace
}  // namespace trefoil::testing
