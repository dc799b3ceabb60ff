#include "model/decoder_layer.h"

#include "base/error.h"

namespace trefoil {
namespace {

WeightLoader loader_of(const WeightSource& weights, int64_t layer) {
  return {weights, fmt::format("model.layers.{}.", layer)};
}

// The config's lists are a claim; the tensors decide. Called before anything of the layer is loaded, so that a wrong
// list is reported as such and not as a missing tensor.
void refuse_other_kind(const ModelConfig& config, const WeightLoader& weights, int64_t layer) {
  const bool kda = config.is_kda(layer);
  const char* foreign_attention = kda ? "self_attn.kv_a_proj_with_mqa" : "self_attn.f_a_proj";
  if (weights.has_linear(foreign_attention)) {
    fail(ErrorCode::kCorrupt,
         "layer {}: the config lists it as {} (number {} of linear_attn_config's lists, which count from 1), but the "
         "checkpoint has {}{}",
         layer, kda ? "KDA" : "MLA", layer + 1, weights.prefix(), foreign_attention);
  }
  const bool moe = config.is_moe(layer);
  const char* foreign_mlp = moe ? "mlp.gate_proj" : "block_sparse_moe.gate";
  if (weights.has_linear(foreign_mlp)) {
    fail(ErrorCode::kCorrupt, "layer {}: first_k_dense_replace {} makes it a {} layer, but the checkpoint has {}{}",
         layer, config.first_k_dense_replace, moe ? "MoE" : "dense", weights.prefix(), foreign_mlp);
  }
}

const WeightLoader& checked(const ModelConfig& config, const WeightLoader& weights, int64_t layer) {
  refuse_other_kind(config, weights, layer);
  return weights;
}

}  // namespace

DecoderLayer::DecoderLayer(const ModelConfig& config, const WeightSource& source, int64_t layer, ExpertStore* store)
    : attention_mix(config, checked(config, loader_of(source, layer), layer), "self_attention_res"),
      mlp_mix(config, loader_of(source, layer), "mlp_res") {
  const WeightLoader weights = loader_of(source, layer);
  const Dim hidden{config.hidden_size, "hidden_size"};
  input_norm = weights.weight_vector("input_layernorm", hidden);
  post_attention_norm = weights.weight_vector("post_attention_layernorm", hidden);
  if (config.is_kda(layer)) {
    kda = std::make_unique<KdaLayer>(config, weights.sub("self_attn"));
  } else {
    mla = std::make_unique<MlaLayer>(config, weights.sub("self_attn"));
  }
  if (config.is_moe(layer)) {
    moe = std::make_unique<Moe>(config, weights.sub("block_sparse_moe"), layer, store);
  } else {
    dense = std::make_unique<Mlp>(config, weights.sub("mlp"), Dim{config.intermediate_size, "intermediate_size"});
  }
}

}  // namespace trefoil
