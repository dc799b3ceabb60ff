// The KDA attention of one layer: projections, short convolutions, decay gate, delta-rule recurrence, gated norm,
// output projection. Formulas: kernels/kda.h, kernels/short_conv.h, kernels/norm.h; docs/architecture.md, "KDA".
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/model_config.h"
#include "model/linear.h"
#include "model/model.h"
#include "model/weight_loader.h"

namespace trefoil {

class KdaLayer {
 public:
  // `weights` has the prefix "model.layers.{layer}.self_attn.". Besides shapes, A_log must hold one entry per head
  // followed by exact zeros (the release pads it to a multiple of 128): anything else is an Error(kCorrupt).
  KdaLayer(const ModelConfig& config, const WeightLoader& weights);

  // h: [tokens, hidden], the normed mix. Sequences own disjoint row ranges of it; states[i] belongs to sequences[i] and
  // is advanced. Returns [tokens, hidden].
  std::vector<float> forward(const Runtime& runtime, KdaForm form, std::span<const float> h, int64_t tokens,
                             std::span<const SequenceRows> sequences, std::span<LayerState* const> states) const;

  LayerState new_state() const;

 private:
  struct Activations;
  void run_heads(const Runtime& runtime, KdaForm form, std::span<const SequenceRows> sequences,
                 std::span<LayerState* const> states, Activations& act) const;
  void run_head(const Runtime& runtime, KdaForm form, const SequenceRows& rows, LayerState& state, int64_t head,
                Activations& act) const;
  void convolve(const Runtime& runtime, const SequenceRows& rows, int64_t head, const std::vector<float>& history,
                const std::vector<float>& conv_weight, const std::vector<float>& raw, std::vector<float>& out) const;
  void advance_history(const SequenceRows& rows, const std::vector<float>& raw, std::vector<float>& history) const;

  int64_t num_heads_;
  int64_t head_dim_;
  int64_t channels_;  // num_heads * head_dim, head-major
  int64_t taps_;      // short_conv_kernel_size
  double gate_lower_bound_;
  float o_norm_eps_;
  std::unique_ptr<LinearWeight> q_proj_, k_proj_, v_proj_, f_a_proj_, f_b_proj_, b_proj_, g_proj_, o_proj_;
  std::vector<float> q_conv_, k_conv_, v_conv_;  // [head][tap][head_dim]
  std::vector<float> exp_a_log_;                 // [num_heads]
  std::vector<float> dt_bias_;                   // [channels]
  std::vector<float> o_norm_;                    // [head_dim]
};

}  // namespace trefoil
