#include "model/moe.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/router.h"
#include "model/moe_batch.h"

namespace trefoil {
namespace {

constexpr Dim shared_inner(const ModelConfig& config) {
  return {config.num_shared_experts * config.moe_intermediate_size, "num_shared_experts x moe_intermediate_size"};
}

// hidden[t, 0..rows) = situ(w1 z, w3 z) for `rows` rows of w1 and w3, both [rows, latent]; hidden rows lie `stride`
// apart.
void hidden_rows(const Situ& unit, Rounding rounding, const float* w1, const float* w3, int64_t rows, int64_t latent,
                 const float* z, int64_t tokens, float* hidden, int64_t stride) {
  const std::span<float> gate = thread_scratch(2, tokens * rows);
  const std::span<float> up = thread_scratch(3, tokens * rows);
  MatmulArgs product = {.x = z,
                        .w = w1,
                        .y = gate.data(),
                        .tokens = tokens,
                        .rows = rows,
                        .k = latent,
                        .x_stride = latent,
                        .y_stride = rows};
  matmul(product);
  product.w = w3;
  product.y = up.data();
  matmul(product);
  round_in_place(gate, rounding);
  round_in_place(up, rounding);
  for (int64_t t = 0; t < tokens; ++t) {
    situ(unit, row_of(gate, t, rows), row_of(up, t, rows), rounding, {hidden + t * stride, static_cast<size_t>(rows)});
  }
}

// out[t, 0..rows) = w2 hidden for `rows` rows of w2 [rows, inner].
void output_rows(Rounding rounding, const float* w2, int64_t rows, int64_t inner, const float* hidden, int64_t tokens,
                 float* out, int64_t stride) {
  matmul({.x = hidden,
          .w = w2,
          .y = out,
          .tokens = tokens,
          .rows = rows,
          .k = inner,
          .x_stride = inner,
          .y_stride = stride});
  for (int64_t t = 0; t < tokens; ++t) {
    round_in_place({out + t * stride, static_cast<size_t>(rows)}, rounding);
  }
}

// A piece of work: some output rows of one expert.
struct Piece {
  ExpertGroup group;
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

std::vector<Piece> split_rows(const std::vector<ExpertGroup>& groups, int64_t rows, int64_t grain) {
  std::vector<Piece> pieces;
  for (const ExpertGroup& group : groups) {
    for (int64_t begin = 0; begin < rows; begin += grain)
      pieces.push_back({group, begin, std::min(rows, begin + grain)});
  }
  return pieces;
}

void pack_tokens(ThreadPool& pool, TileMode mode, std::span<const float> x, int64_t tokens, int64_t cols,
                 PackedTokens& out) {
  out.reset(mode, tokens, cols);
  pool.parallel_ranges(out.groups(), 8, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) out.pack_group(group, x.data() + group * kTileCols, cols);
  });
}

// Tokens of every expert, experts ascending: assignment[first[e] .. first[e + 1]) index [tokens, top_k] of the routing.
struct Assignments {
  std::vector<int64_t> first;       // [num_experts + 1]
  std::vector<int64_t> assignment;  // [tokens * top_k]

  Assignments(const Routing& routing, int64_t num_experts)
      : first(static_cast<size_t>(num_experts) + 1), assignment(routing.expert.size()) {
    for (const int32_t expert : routing.expert) {
      TREFOIL_CHECK(expert >= 0 && expert < num_experts);
      ++first[static_cast<size_t>(expert) + 1];
    }
    for (size_t e = 1; e < first.size(); ++e) first[e] += first[e - 1];
    std::vector<int64_t> next(first.begin(), first.end() - 1);
    for (size_t i = 0; i < routing.expert.size(); ++i) {
      assignment[static_cast<size_t>(next[static_cast<size_t>(routing.expert[i])]++)] = static_cast<int64_t>(i);
    }
  }
};

}  // namespace

Moe::Moe(const ModelConfig& config, const WeightLoader& weights)
    : name_(weights.prefix().substr(0, weights.prefix().size() - 1)),
      situ_(situ_of(config)),
      hidden_size_(config.hidden_size),
      latent_size_(config.routed_expert_hidden_size),
      inner_size_(config.moe_intermediate_size),
      top_k_(config.num_experts_per_token),
      routed_scaling_factor_(config.routed_scaling_factor),
      norm_eps_(static_cast<float>(config.rms_norm_eps)),
      shared_experts_(config, weights.sub("shared_experts"), shared_inner(config)) {
  const Dim hidden{hidden_size_, "hidden_size"};
  const Dim latent{latent_size_, "routed_expert_hidden_size"};
  const Dim inner{inner_size_, "moe_intermediate_size"};
  const Dim experts{config.num_experts, "num_experts"};
  gate_ = weights.linear("gate", experts, hidden);
  bias_ = weights.tensor("gate.e_score_correction_bias", {experts});
  down_proj_ = weights.linear("routed_expert_down_proj", latent, hidden);
  up_proj_ = weights.linear("routed_expert_up_proj", hidden, latent);
  norm_ = weights.weight_vector("routed_expert_norm", latent);
  experts_.resize(static_cast<size_t>(config.num_experts));
  for (size_t e = 0; e < experts_.size(); ++e) {
    const WeightLoader expert = weights.sub(fmt::format("experts.{}", e));
    experts_[e] = {.w1 = expert.linear("w1", inner, latent),
                   .w2 = expert.linear("w2", latent, inner),
                   .w3 = expert.linear("w3", inner, latent)};
  }
}

Routing Moe::route(const Runtime& runtime, std::span<const float> h, int64_t tokens) const {
  // A product of f32 values that is not rounded, whatever the numerics.
  const std::vector<float> logits =
      apply_linear({.rounding = Rounding::kNone, .pool = runtime.pool, .profile = runtime.profile}, *gate_, h, tokens);
  const int64_t num_experts = static_cast<int64_t>(experts_.size());
  Routing routing{.tokens = tokens, .top_k = top_k_, .expert = {}, .weight = {}};
  routing.expert.resize(block_size(tokens, top_k_));
  routing.weight.resize(block_size(tokens, top_k_));
  std::vector<float> score(experts_.size()), biased(experts_.size());
  std::vector<int32_t> order(experts_.size());
  for (int64_t t = 0; t < tokens; ++t) {
    const std::span<int32_t> expert(routing.expert.data() + t * top_k_, static_cast<size_t>(top_k_));
    const bool ok = choose_experts(row_of(std::span(logits), t, num_experts), bias_, routed_scaling_factor_,
                                   {score, biased, order}, expert, row_of(std::span(routing.weight), t, top_k_));
    if (!ok) fail(ErrorCode::kCorrupt, "{}.gate: router score is NaN at row {} of {}", name_, t, tokens);
  }
  return routing;
}

std::vector<float> Moe::latent(const Runtime& runtime, std::span<const float> h, int64_t tokens) const {
  return apply_linear(runtime, *down_proj_, h, tokens);
}

std::vector<float> Moe::expert_sum(const Runtime& runtime, std::span<const float> z, const Routing& routing,
                                   std::span<const ExpertLinears> experts) const {
  TREFOIL_CHECK(experts.size() == experts_.size());
  TREFOIL_CHECK(z.size() == block_size(routing.tokens, latent_size_));
  TREFOIL_CHECK(routing.expert.size() == block_size(routing.tokens, routing.top_k));
  TREFOIL_CHECK(routing.weight.size() == routing.expert.size());
  constexpr int64_t kBatchFloats = int64_t{1} << 24;  // 64 MiB of gathered inputs, hidden values and outputs
  const int64_t batch_rows = std::max<int64_t>(1, kBatchFloats / (2 * latent_size_ + inner_size_));
  const Assignments all(routing, static_cast<int64_t>(experts.size()));
  std::vector<float> sum(z.size());
  const std::optional<TileMode> mode = runtime.tile_mode();
  PackedTokens packed;  // z for experts in tiles, made when the first of them comes
  ExpertBatch batch;
  int64_t batch_begin = 0;  // into all.assignment
  const auto flush = [&](int64_t batch_end) {
    batch.assignment = std::span(all.assignment)
                           .subspan(static_cast<size_t>(batch_begin), static_cast<size_t>(batch_end - batch_begin));
    if (mode && all_in_tiles(experts, batch.groups)) {
      if (packed.tokens() == 0) pack_tokens(*runtime.pool, *mode, z, routing.tokens, latent_size_, packed);
      run_tiles(runtime, *mode, experts, batch, packed, routing, sum);
    } else if (!batch.groups.empty()) {
      run_batch(runtime, experts, batch, z, routing, sum);
    }
    batch.groups.clear();
    batch_begin = batch_end;
  };
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t end = all.first[e + 1];
    for (int64_t begin = all.first[e]; begin < end;) {
      const int64_t count = std::min(end - begin, batch_rows);  // an expert of many tokens is taken in pieces
      if (begin + count - batch_begin > batch_rows) flush(begin);
      batch.groups.push_back({static_cast<int64_t>(e), begin - batch_begin, count});
      begin += count;
    }
  }
  flush(static_cast<int64_t>(all.assignment.size()));
  round_in_place(sum, runtime.rounding);
  return sum;
}

void Moe::run_batch(const Runtime& runtime, std::span<const ExpertLinears> experts, const ExpertBatch& batch,
                    std::span<const float> z, const Routing& routing, std::span<float> sum) const {
  const int64_t rows = static_cast<int64_t>(batch.assignment.size());
  std::vector<float> gathered(block_size(rows, latent_size_));
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t token = batch.assignment[static_cast<size_t>(i)] / routing.top_k;
    std::copy_n(z.data() + token * latent_size_, latent_size_, gathered.data() + i * latent_size_);
  }

  std::vector<float> hidden(block_size(rows, inner_size_));
  const int threads = runtime.pool->num_threads();
  const auto up_pieces = split_rows(batch.groups, inner_size_, rows_per_task(inner_size_, latent_size_, threads));
  runtime.pool->parallel_for(static_cast<int64_t>(up_pieces.size()), [&](int64_t i) {
    const Piece& piece = up_pieces[static_cast<size_t>(i)];
    const ExpertLinears& expert = experts[static_cast<size_t>(piece.group.expert)];
    const int64_t count = piece.row_end - piece.row_begin;
    const std::span<float> w1 = thread_scratch(0, count * latent_size_);
    const std::span<float> w3 = thread_scratch(1, count * latent_size_);
    expert.w1->decode_rows(piece.row_begin, piece.row_end, w1);
    expert.w3->decode_rows(piece.row_begin, piece.row_end, w3);
    hidden_rows(situ_, runtime.rounding, w1.data(), w3.data(), count, latent_size_,
                gathered.data() + piece.group.begin * latent_size_, piece.group.count,
                hidden.data() + piece.group.begin * inner_size_ + piece.row_begin, inner_size_);
  });

  std::vector<float> out(block_size(rows, latent_size_));
  const auto down_pieces = split_rows(batch.groups, latent_size_, rows_per_task(latent_size_, inner_size_, threads));
  runtime.pool->parallel_for(static_cast<int64_t>(down_pieces.size()), [&](int64_t i) {
    const Piece& piece = down_pieces[static_cast<size_t>(i)];
    const int64_t count = piece.row_end - piece.row_begin;
    const std::span<float> w2 = thread_scratch(0, count * inner_size_);
    experts[static_cast<size_t>(piece.group.expert)].w2->decode_rows(piece.row_begin, piece.row_end, w2);
    output_rows(runtime.rounding, w2.data(), count, inner_size_, hidden.data() + piece.group.begin * inner_size_,
                piece.group.count, out.data() + piece.group.begin * latent_size_ + piece.row_begin, latent_size_);
  });

  // Rows come in ascending expert order, so every token's sum is taken in ascending expert order.
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t assignment = batch.assignment[static_cast<size_t>(i)];
    add_scaled(routing.weight[static_cast<size_t>(assignment)], row_of(std::span<const float>(out), i, latent_size_),
               row_of(sum, assignment / routing.top_k, latent_size_));
  }
}

std::vector<float> Moe::finish(const Runtime& runtime, std::span<const float> h, std::span<const float> expert_sum,
                               int64_t tokens) const {
  TREFOIL_CHECK(expert_sum.size() == block_size(tokens, latent_size_));
  std::vector<float> normed(expert_sum.size());
  for (int64_t t = 0; t < tokens; ++t) {
    rms_norm(row_of(expert_sum, t, latent_size_), norm_, norm_eps_, runtime.rounding,
             row_of(std::span(normed), t, latent_size_));
  }
  std::vector<float> out = apply_linear(runtime, *up_proj_, normed, tokens);
  const ProfileScope scope(runtime.profile, ForwardPart::kSharedExperts);
  add(out, shared_experts_.forward(runtime, h, tokens), runtime.rounding, out);
  return out;
}

void expert_hidden(const GateUpWeights& weights, const ModelConfig& config, Numerics numerics, std::span<const float> z,
                   int64_t tokens, std::span<float> hidden) {
  TREFOIL_CHECK(weights.w1.size() == block_size(weights.inner, weights.latent));
  TREFOIL_CHECK(weights.w3.size() == weights.w1.size());
  TREFOIL_CHECK(z.size() == block_size(tokens, weights.latent));
  TREFOIL_CHECK(hidden.size() == block_size(tokens, weights.inner));
  hidden_rows(situ_of(config), rounding_of(numerics), weights.w1.data(), weights.w3.data(), weights.inner,
              weights.latent, z.data(), tokens, hidden.data(), weights.inner);
}

}  // namespace trefoil
