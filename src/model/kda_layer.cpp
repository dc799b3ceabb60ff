#include "model/kda_layer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/elementary.h"
#include "kernels/kda.h"
#include "kernels/norm.h"
#include "kernels/short_conv.h"

namespace trefoil {
namespace {

constexpr std::string_view kHeadsByDim = "linear_attn_config.num_heads x head_dim";
constexpr std::string_view kHeadDim = "linear_attn_config.head_dim";

// Stored [channels, 1, taps], newest tap last; wanted [head][tap][head_dim].
std::vector<float> load_conv(const WeightLoader& weights, std::string_view name, int64_t heads, int64_t head_dim,
                             int64_t taps) {
  const std::vector<float> stored = weights.tensor(
      name, {{heads * head_dim, kHeadsByDim}, {1, "depthwise"}, {taps, "linear_attn_config.short_conv_kernel_size"}});
  std::vector<float> by_tap(stored.size());
  for (int64_t c = 0; c < heads * head_dim; ++c) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t to = ((c / head_dim) * taps + tap) * head_dim + c % head_dim;
      by_tap[static_cast<size_t>(to)] = stored[static_cast<size_t>(c * taps + tap)];
    }
  }
  return by_tap;
}

// exp(A_log) of the heads. The padding after them must be zero: nonzero values would mean that the entries are not per
// head.
std::vector<float> load_exp_a_log(const WeightLoader& weights, int64_t heads) {
  std::vector<float> stored = weights.tensor("A_log", {{kAnySize, "at least linear_attn_config.num_heads"}});
  const std::string name = weights.prefix() + "A_log";
  if (static_cast<int64_t>(stored.size()) < heads) {
    fail(ErrorCode::kCorrupt, "{}: {} entries, expected at least {}, one per head", name, stored.size(), heads);
  }
  for (size_t i = static_cast<size_t>(heads); i < stored.size(); ++i) {
    if (stored[i] != 0.0f) {
      fail(ErrorCode::kCorrupt, "{}: entry {} is {}, expected 0 after the {} heads (A_log is per head, zero-padded)",
           name, i, stored[i], heads);
    }
  }
  stored.resize(static_cast<size_t>(heads));
  for (float& value : stored) value = exp_f32(value);
  return stored;
}

}  // namespace

// [tokens, channels] each, except beta.
struct KdaLayer::Activations {
  std::vector<float> raw_q, raw_k, raw_v;  // projections, before the convolution
  std::vector<float> q, k, v;              // after it; q and k normalised
  std::vector<float> decay;                // f_b(f_a(h)), then the log decay
  std::vector<float> beta;                 // [tokens, num_heads]
  std::vector<float> gate;                 // g_proj(h)
  std::vector<float> out;
};

KdaLayer::KdaLayer(const ModelConfig& config, const WeightLoader& weights)
    : num_heads_(config.kda_num_heads),
      head_dim_(config.kda_head_dim),
      channels_(num_heads_ * head_dim_),
      taps_(config.short_conv_kernel_size),
      gate_lower_bound_(config.gate_lower_bound),
      o_norm_eps_(static_cast<float>(config.rms_norm_eps)) {
  const Dim hidden{config.hidden_size, "hidden_size"};
  const Dim channels{channels_, kHeadsByDim};
  const Dim head_dim{head_dim_, kHeadDim};
  q_proj_ = weights.linear("q_proj", channels, hidden);
  k_proj_ = weights.linear("k_proj", channels, hidden);
  v_proj_ = weights.linear("v_proj", channels, hidden);
  f_a_proj_ = weights.linear("f_a_proj", head_dim, hidden);
  f_b_proj_ = weights.linear("f_b_proj", channels, head_dim);
  b_proj_ = weights.linear("b_proj", {num_heads_, "linear_attn_config.num_heads"}, hidden);
  g_proj_ = weights.linear("g_proj", channels, hidden);
  o_proj_ = weights.linear("o_proj", hidden, channels);
  q_conv_ = load_conv(weights, "q_conv1d.weight", num_heads_, head_dim_, taps_);
  k_conv_ = load_conv(weights, "k_conv1d.weight", num_heads_, head_dim_, taps_);
  v_conv_ = load_conv(weights, "v_conv1d.weight", num_heads_, head_dim_, taps_);
  exp_a_log_ = load_exp_a_log(weights, num_heads_);
  dt_bias_ = weights.tensor("dt_bias", {channels});
  o_norm_ = weights.weight_vector("o_norm", head_dim);
}

LayerState KdaLayer::new_state() const {
  LayerState state;
  const size_t history = block_size(taps_ - 1, channels_);
  state.conv_q.resize(history);
  state.conv_k.resize(history);
  state.conv_v.resize(history);
  state.recurrent.resize(block_size(channels_, head_dim_));
  return state;
}

std::vector<float> KdaLayer::forward(const Runtime& runtime, KdaForm form, std::span<const float> h, int64_t tokens,
                                     std::span<const SequenceRows> sequences,
                                     std::span<LayerState* const> states) const {
  Activations act;
  act.raw_q = apply_linear(runtime, *q_proj_, h, tokens);
  act.raw_k = apply_linear(runtime, *k_proj_, h, tokens);
  act.raw_v = apply_linear(runtime, *v_proj_, h, tokens);
  act.decay = apply_linear(runtime, *f_b_proj_, apply_linear(runtime, *f_a_proj_, h, tokens), tokens);
  act.beta = apply_linear(runtime, *b_proj_, h, tokens);
  act.gate = apply_linear(runtime, *g_proj_, h, tokens);
  {
    const ProfileScope scope(runtime.profile, ForwardPart::kKdaCore);
    run_heads(runtime, form, sequences, states, act);
  }
  return apply_linear(runtime, *o_proj_, act.out, tokens);
}

void KdaLayer::run_heads(const Runtime& runtime, KdaForm form, std::span<const SequenceRows> sequences,
                         std::span<LayerState* const> states, Activations& act) const {
  if (runtime.profile != nullptr) {
    runtime.profile->add_bytes(sequences.size() * 2 * sizeof(float) *
                               block_size(channels_, head_dim_));  // read, written
  }
  for (float& value : act.beta) value = sigmoid_f32(value);
  for (std::vector<float>* made : {&act.q, &act.k, &act.v, &act.out}) made->resize(act.raw_q.size());

  const int64_t items = static_cast<int64_t>(sequences.size()) * num_heads_;
  runtime.pool->parallel_for(items, [&](int64_t item) {
    const size_t sequence = static_cast<size_t>(item / num_heads_);
    run_head(runtime, form, sequences[sequence], *states[sequence], item % num_heads_, act);
  });
  for (size_t i = 0; i < sequences.size(); ++i) {
    advance_history(sequences[i], act.raw_q, states[i]->conv_q);
    advance_history(sequences[i], act.raw_k, states[i]->conv_k);
    advance_history(sequences[i], act.raw_v, states[i]->conv_v);
  }
}

// Everything between the projections, for one head of one sequence.
void KdaLayer::run_head(const Runtime& runtime, KdaForm form, const SequenceRows& rows, LayerState& state, int64_t head,
                        Activations& act) const {
  convolve(runtime, rows, head, state.conv_q, q_conv_, act.raw_q, act.q);
  convolve(runtime, rows, head, state.conv_k, k_conv_, act.raw_k, act.k);
  convolve(runtime, rows, head, state.conv_v, v_conv_, act.raw_v, act.v);

  const size_t dim = static_cast<size_t>(head_dim_);
  const auto at = [&](std::vector<float>& block, int64_t row) {
    return std::span<float>(block.data() + row * channels_ + head * head_dim_, dim);
  };
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(head_dim_));
  const std::span<const float> dt_bias(dt_bias_.data() + head * head_dim_, dim);
  for (int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
    l2_normalize(at(act.q, row), q_scale, at(act.q, row));
    l2_normalize(at(act.k, row), 1.0f, at(act.k, row));
    kda_log_decay(at(act.decay, row), dt_bias, exp_a_log_[static_cast<size_t>(head)], gate_lower_bound_,
                  at(act.decay, row));
  }

  const KdaArgs args = {.q = at(act.q, rows.begin).data(),
                        .k = at(act.k, rows.begin).data(),
                        .v = at(act.v, rows.begin).data(),
                        .lg = at(act.decay, rows.begin).data(),
                        .beta = act.beta.data() + rows.begin * num_heads_ + head,
                        .state = state.recurrent.data() + head * head_dim_ * head_dim_,
                        .out = at(act.out, rows.begin).data(),
                        .tokens = rows.count,
                        .dim = head_dim_,
                        .stride = channels_,
                        .beta_stride = num_heads_};
  thread_local std::vector<float> scratch;
  if (form == KdaForm::kChunked && rows.count > 1) {
    kda_chunked(args, scratch);
  } else {
    kda_recurrent(args, scratch);
  }

  for (int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
    const std::span<float> out = at(act.out, row);
    round_in_place(out, runtime.rounding);
    gated_rms_norm(out, o_norm_, at(act.gate, row), o_norm_eps_, runtime.rounding, out);
  }
}

void KdaLayer::convolve(const Runtime& runtime, const SequenceRows& rows, int64_t head,
                        const std::vector<float>& history, const std::vector<float>& conv_weight,
                        const std::vector<float>& raw, std::vector<float>& out) const {
  const int64_t column = head * head_dim_;
  const std::span<const float> weight(conv_weight.data() + head * taps_ * head_dim_,
                                      static_cast<size_t>(taps_ * head_dim_));
  std::vector<const float*> taps(static_cast<size_t>(taps_));
  for (int64_t i = 0; i < rows.count; ++i) {
    for (int64_t tap = 0; tap < taps_; ++tap) {
      // Token i - (taps - 1) + tap of this call; a negative one is in the history, whose last row is token -1.
      const int64_t token = i - (taps_ - 1) + tap;
      const float* row =
          token >= 0 ? raw.data() + (rows.begin + token) * channels_ : history.data() + (taps_ - 1 + token) * channels_;
      taps[static_cast<size_t>(tap)] = row + column;
    }
    short_conv(taps, weight, runtime.rounding,
               {out.data() + (rows.begin + i) * channels_ + column, static_cast<size_t>(head_dim_)});
  }
}

// Keeps the newest taps - 1 rows of (history, raw).
void KdaLayer::advance_history(const SequenceRows& rows, const std::vector<float>& raw,
                               std::vector<float>& history) const {
  const int64_t kept = taps_ - 1;
  const int64_t fresh = std::min(kept, rows.count);
  std::copy(history.begin() + fresh * channels_, history.end(), history.begin());
  const auto newest = raw.begin() + (rows.begin + rows.count - fresh) * channels_;
  std::copy(newest, newest + fresh * channels_, history.begin() + (kept - fresh) * channels_);
}

}  // namespace trefoil
