#include "model/mla_layer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"

namespace trefoil {

// One head of one sequence: the new queries, everything cached, and where the results go.
struct MlaLayer::Head {
  int64_t index = 0;
  int64_t tokens = 0;        // new ones
  int64_t seen = 0;          // cached rows, the new ones included
  const float* q = nullptr;  // first new token's query of this head; tokens lie num_heads * key_dim apart
  const float* cache = nullptr;
  float* out = nullptr;  // tokens lie num_heads * value_dim apart
};

MlaLayer::MlaLayer(const ModelConfig& config, const WeightLoader& weights)
    : num_heads_(config.num_attention_heads),
      q_lora_rank_(config.q_lora_rank),
      kv_lora_rank_(config.kv_lora_rank),
      nope_dim_(config.qk_nope_head_dim),
      rope_dim_(config.qk_rope_head_dim),
      value_dim_(config.v_head_dim) {
  const Dim hidden{config.hidden_size, "hidden_size"};
  const Dim q_rank{q_lora_rank_, "q_lora_rank"};
  const Dim kv_rank{kv_lora_rank_, "kv_lora_rank"};
  const Dim values{num_heads_ * value_dim_, "num_attention_heads x v_head_dim"};
  q_a_proj_ = weights.linear("q_a_proj", q_rank, hidden);
  q_b_proj_ = weights.linear(
      "q_b_proj", {num_heads_ * (nope_dim_ + rope_dim_), "num_attention_heads x (qk_nope_head_dim + qk_rope_head_dim)"},
      q_rank);
  kv_a_proj_ =
      weights.linear("kv_a_proj_with_mqa", {kv_lora_rank_ + rope_dim_, "kv_lora_rank + qk_rope_head_dim"}, hidden);
  kv_b_proj_ = weights.linear(
      "kv_b_proj", {num_heads_ * (nope_dim_ + value_dim_), "num_attention_heads x (qk_nope_head_dim + v_head_dim)"},
      kv_rank);
  g_proj_ = weights.linear("g_proj", values, hidden);
  o_proj_ = weights.linear("o_proj", hidden, values);
  q_a_norm_ = weights.weight_vector("q_a_layernorm", q_rank);
  kv_a_norm_ = weights.weight_vector("kv_a_layernorm", kv_rank);
}

std::vector<float> MlaLayer::query_latent(const Runtime& runtime, std::span<const float> h, int64_t tokens) const {
  std::vector<float> latent = apply_linear(runtime, *q_a_proj_, h, tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    const std::span<float> row = row_of(std::span(latent), t, q_lora_rank_);
    rms_norm(row, q_a_norm_, kMlaLatentNormEps, runtime.rounding, row);
  }
  return latent;
}

std::vector<float> MlaLayer::cache_rows(const Runtime& runtime, std::span<const float> h, int64_t tokens) const {
  std::vector<float> rows = apply_linear(runtime, *kv_a_proj_, h, tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    // Only the latent is normed; the rope part is used raw.
    const std::span<float> latent =
        row_of(std::span(rows), t, kv_lora_rank_ + rope_dim_).first(static_cast<size_t>(kv_lora_rank_));
    rms_norm(latent, kv_a_norm_, kMlaLatentNormEps, runtime.rounding, latent);
  }
  return rows;
}

std::vector<float> MlaLayer::forward(const Runtime& runtime, MlaForm form, std::span<const float> h, int64_t tokens,
                                     std::span<const SequenceRows> sequences,
                                     std::span<LayerState* const> states) const {
  const std::vector<float> q = apply_linear(runtime, *q_b_proj_, query_latent(runtime, h, tokens), tokens);
  const std::vector<float> fresh = cache_rows(runtime, h, tokens);
  const int64_t cache_width = kv_lora_rank_ + rope_dim_;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto begin = fresh.begin() + sequences[i].begin * cache_width;
    std::vector<float>& kv = states[i]->kv;
    const size_t grown = kv.size() + block_size(sequences[i].count, cache_width);
    if (grown > kv.capacity()) kv.reserve(grown + grown / 4);  // the memory plan counts on a quarter, not on doubling
    states[i]->kv.insert(states[i]->kv.end(), begin, begin + sequences[i].count * cache_width);
  }

  std::vector<float> out(block_size(tokens, num_heads_ * value_dim_));
  attend(runtime, form, q, sequences, states, out);

  const std::vector<float> gate = apply_linear(runtime, *g_proj_, h, tokens);
  multiply_sigmoid(out, gate, runtime.rounding, out);
  return apply_linear(runtime, *o_proj_, out, tokens);
}

void MlaLayer::attend(const Runtime& runtime, MlaForm form, std::span<const float> q,
                      std::span<const SequenceRows> sequences, std::span<LayerState* const> states,
                      std::span<float> out) const {
  const ProfileScope scope(runtime.profile, ForwardPart::kMlaCore);
  const int64_t cache_width = kv_lora_rank_ + rope_dim_;
  if (runtime.profile != nullptr) {
    runtime.profile->add_bytes(bytes_of(*kv_b_proj_));
    for (const LayerState* state : states) runtime.profile->add_bytes(state->kv.size() * sizeof(float));
  }
  const int64_t items = static_cast<int64_t>(sequences.size()) * num_heads_;
  runtime.pool->parallel_for(items, [&](int64_t item) {
    const SequenceRows& rows = sequences[static_cast<size_t>(item / num_heads_)];
    const LayerState& state = *states[static_cast<size_t>(item / num_heads_)];
    const int64_t index = item % num_heads_;
    const Head head = {.index = index,
                       .tokens = rows.count,
                       .seen = static_cast<int64_t>(state.kv.size()) / cache_width,
                       .q = q.data() + (rows.begin * num_heads_ + index) * (nope_dim_ + rope_dim_),
                       .cache = state.kv.data(),
                       .out = out.data() + (rows.begin * num_heads_ + index) * value_dim_};
    form == MlaForm::kExpanded ? attend_expanded(runtime, head) : attend_absorbed(runtime, head);
  });
  round_in_place(out, runtime.rounding);
}

void MlaLayer::attend_expanded(const Runtime& runtime, const Head& head) const {
  const int64_t key_dim = nope_dim_ + rope_dim_;
  const int64_t cache_width = kv_lora_rank_ + rope_dim_;
  const int64_t rows_of_head = nope_dim_ + value_dim_;  // of kv_b: this head's k_nope rows, then its v rows
  const std::span<float> kv_b = thread_scratch(0, rows_of_head * kv_lora_rank_);
  kv_b_proj_->decode_rows(head.index * rows_of_head, (head.index + 1) * rows_of_head, kv_b);

  const std::span<float> keys = thread_scratch(1, head.seen * key_dim);
  const std::span<float> values = thread_scratch(2, head.seen * value_dim_);
  MatmulArgs expand = {.x = head.cache,
                       .w = kv_b.data(),
                       .y = keys.data(),
                       .tokens = head.seen,
                       .rows = nope_dim_,
                       .k = kv_lora_rank_,
                       .x_stride = cache_width,
                       .y_stride = key_dim};
  matmul(expand);
  expand.w = kv_b.data() + nope_dim_ * kv_lora_rank_;
  expand.y = values.data();
  expand.rows = value_dim_;
  expand.y_stride = value_dim_;
  matmul(expand);
  for (int64_t s = 0; s < head.seen; ++s) {
    std::copy_n(head.cache + s * cache_width + kv_lora_rank_, rope_dim_, keys.data() + s * key_dim + nope_dim_);
  }
  round_in_place(keys,
                 runtime.rounding);  // the rope part is a Linear output already: rounding it again changes nothing
  round_in_place(values, runtime.rounding);

  const std::span<float> q = thread_scratch(3, head.tokens * key_dim);
  const std::span<float> out = thread_scratch(4, head.tokens * value_dim_);
  for (int64_t t = 0; t < head.tokens; ++t) {
    std::copy_n(head.q + t * num_heads_ * key_dim, key_dim, q.data() + t * key_dim);
  }
  thread_local std::vector<float> scores;
  causal_attention({.q = q.data(),
                    .k = keys.data(),
                    .v = values.data(),
                    .out = out.data(),
                    .tokens = head.tokens,
                    .first = head.seen - head.tokens,
                    .key_dim = key_dim,
                    .value_dim = value_dim_,
                    .v_stride = value_dim_,
                    .scale = 1.0f / std::sqrt(static_cast<float>(key_dim)),
                    .rounding = runtime.rounding},
                   scores);
  for (int64_t t = 0; t < head.tokens; ++t) {
    std::copy_n(out.data() + t * value_dim_, value_dim_, head.out + t * num_heads_ * value_dim_);
  }
}

void MlaLayer::attend_absorbed(const Runtime& runtime, const Head& head) const {
  const int64_t key_dim = nope_dim_ + rope_dim_;
  const int64_t cache_width = kv_lora_rank_ + rope_dim_;
  const int64_t rows_of_head = nope_dim_ + value_dim_;
  const std::span<float> kv_b = thread_scratch(0, rows_of_head * kv_lora_rank_);
  kv_b_proj_->decode_rows(head.index * rows_of_head, (head.index + 1) * rows_of_head, kv_b);

  // [U^T q_nope | q_rot] per token: a query against whole cache rows.
  const std::span<float> q = thread_scratch(1, head.tokens * cache_width);
  std::fill(q.begin(), q.end(), 0.0f);
  for (int64_t t = 0; t < head.tokens; ++t) {
    const float* from = head.q + t * num_heads_ * key_dim;
    const std::span<float> row = row_of(q, t, cache_width);
    for (int64_t d = 0; d < nope_dim_; ++d) {
      add_scaled(from[d], row_of(std::span<const float>(kv_b), d, kv_lora_rank_),
                 row.first(static_cast<size_t>(kv_lora_rank_)));
    }
    std::copy_n(from + nope_dim_, rope_dim_, row.data() + kv_lora_rank_);
  }

  const std::span<float> mixed = thread_scratch(2, head.tokens * kv_lora_rank_);  // z: the latents, mixed
  thread_local std::vector<float> scores;
  causal_attention({.q = q.data(),
                    .k = head.cache,
                    .v = head.cache,
                    .out = mixed.data(),
                    .tokens = head.tokens,
                    .first = head.seen - head.tokens,
                    .key_dim = cache_width,
                    .value_dim = kv_lora_rank_,
                    .v_stride = cache_width,
                    .scale = 1.0f / std::sqrt(static_cast<float>(key_dim)),
                    .rounding = runtime.rounding},
                   scores);
  matmul({.x = mixed.data(),
          .w = kv_b.data() + nope_dim_ * kv_lora_rank_,
          .y = head.out,
          .tokens = head.tokens,
          .rows = value_dim_,
          .k = kv_lora_rank_,
          .x_stride = kv_lora_rank_,
          .y_stride = num_heads_ * value_dim_});
}

}  // namespace trefoil
