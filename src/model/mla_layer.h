// The gated MLA attention of one layer: latent queries and keys/values, no positional encoding, a sigmoid output gate.
// docs/architecture.md, "MLA".
//   q = q_b(rms(q_a(h)));  [c | k_rot] = kv_a(h);  c = rms(c);  per head [k_nope | v] = kv_b(c);  k = [k_nope | k_rot]
//   o = causal attention with scale (qk_nope_head_dim + qk_rope_head_dim)^-0.5;  y = o_proj(o * sigmoid(g_proj(h)))
//
// Expanded: keys and values of every head are rebuilt from the cached latents, and rounded as Linear outputs. Absorbed:
// the query is taken into the latent space (U^T q) and the result out of it (V z), so the cache itself serves as keys
// and values. Equal in exact arithmetic; absorbed has no rounded keys and values.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/model_config.h"
#include "model/linear.h"
#include "model/model.h"
#include "model/weight_loader.h"

namespace trefoil {

// The two latent norms are built without an epsilon argument in the release's code and take their class default, which
// is not rms_norm_eps.
constexpr float kMlaLatentNormEps = 1e-6f;

class MlaLayer {
 public:
  // `weights` has the prefix "model.layers.{layer}.self_attn.".
  MlaLayer(const ModelConfig& config, const WeightLoader& weights);

  // As KdaLayer::forward; states grow by one row per token.
  std::vector<float> forward(const Runtime& runtime, MlaForm form, std::span<const float> h, int64_t tokens,
                             std::span<const SequenceRows> sequences, std::span<LayerState* const> states) const;

  // The normed query latent [tokens, q_lora_rank] and the rows the cache takes, [tokens, kv_lora_rank +
  // qk_rope_head_dim].
  std::vector<float> query_latent(const Runtime& runtime, std::span<const float> h, int64_t tokens) const;
  std::vector<float> cache_rows(const Runtime& runtime, std::span<const float> h, int64_t tokens) const;

 private:
  struct Head;
  void attend(const Runtime& runtime, MlaForm form, std::span<const float> q, std::span<const SequenceRows> sequences,
              std::span<LayerState* const> states, std::span<float> out) const;
  void attend_expanded(const Runtime& runtime, const Head& head) const;
  void attend_absorbed(const Runtime& runtime, const Head& head) const;

  int64_t num_heads_;
  int64_t q_lora_rank_, kv_lora_rank_;
  int64_t nope_dim_, rope_dim_, value_dim_;
  std::unique_ptr<LinearWeight> q_a_proj_, q_b_proj_, kv_a_proj_, kv_b_proj_, g_proj_, o_proj_;
  std::vector<float> q_a_norm_, kv_a_norm_;
};

}  // namespace trefoil
