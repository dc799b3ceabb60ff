// The weights of one decoder layer, loaded and checked against the config. docs/architecture.md.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/model_config.h"
#include "model/attn_res_site.h"
#include "model/kda_layer.h"
#include "model/mla_layer.h"
#include "model/mlp.h"
#include "model/moe.h"

namespace trefoil {

struct DecoderLayer {
  // Loads "model.layers.{layer}.". A layer that holds the tensors of the other attention kind, or of the other kind of
  // MLP, than the config's lists say is an Error(kCorrupt) naming the layer and the tensor.
  // `store` as Moe takes it; may be null.
  DecoderLayer(const ModelConfig& config, const WeightSource& weights, int64_t layer, ExpertStore* store = nullptr);

  AttnResSite attention_mix;  // unused where nothing is stacked yet (layer 0)
  AttnResSite mlp_mix;
  std::vector<float> input_norm;           // [hidden]
  std::vector<float> post_attention_norm;  // [hidden]
  std::unique_ptr<KdaLayer> kda;           // exactly one of kda and mla
  std::unique_ptr<MlaLayer> mla;
  std::unique_ptr<Mlp> dense;  // exactly one of dense and moe
  std::unique_ptr<Moe> moe;
};

}  // namespace trefoil
