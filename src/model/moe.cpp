#include "model/moe.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "kernels/norm.h"
#include "kernels/router.h"
#include "model/tile_storage.h"
#include "model/weight_shape.h"

namespace trefoil {
namespace {

constexpr Dim shared_inner(const ModelConfig& config) {
  return {config.num_shared_experts * config.moe_intermediate_size, "num_shared_experts x moe_intermediate_size"};
}

// Ascending, each once.
std::vector<int32_t> used_experts(const Routing& routing) {
  std::vector<int32_t> experts = routing.expert;
  std::sort(experts.begin(), experts.end());
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
  return experts;
}

}  // namespace

Moe::Moe(const ModelConfig& config, const WeightLoader& weights, int64_t layer, ExpertStore* store)
    : name_(weights.prefix().substr(0, weights.prefix().size() - 1)),
      layer_(layer),
      store_(store),
      dims_{situ_of(config), config.routed_expert_hidden_size, config.moe_intermediate_size},
      num_experts_(config.num_experts),
      top_k_(config.num_experts_per_token),
      routed_scaling_factor_(config.routed_scaling_factor),
      norm_eps_(static_cast<float>(config.rms_norm_eps)),
      shared_experts_(config, weights.sub("shared_experts"), shared_inner(config)) {
  const Dim hidden{config.hidden_size, "hidden_size"};
  const Dim latent{dims_.latent, "routed_expert_hidden_size"};
  const Dim inner{dims_.inner, "moe_intermediate_size"};
  const Dim experts{config.num_experts, "num_experts"};
  gate_ = weights.linear("gate", experts, hidden);
  bias_ = weights.tensor("gate.e_score_correction_bias", {experts});
  down_proj_ = weights.linear("routed_expert_down_proj", latent, hidden);
  up_proj_ = weights.linear("routed_expert_up_proj", hidden, latent);
  norm_ = weights.weight_vector("routed_expert_norm", latent);
  if (store_ != nullptr) {
    check_stored_experts();
    return;
  }
  experts_.resize(static_cast<size_t>(num_experts_));
  for (size_t e = 0; e < experts_.size(); ++e) {
    const WeightLoader expert = weights.sub(fmt::format("experts.{}", e));
    experts_[e] = {.w1 = expert.linear("w1", inner, latent),
                   .w2 = expert.linear("w2", latent, inner),
                   .w3 = expert.linear("w3", inner, latent)};
  }
}

void Moe::check_stored_experts() const {
  const ExpertLayout& layout = store_->layout();
  TREFOIL_CHECK(layout.num_experts() == num_experts_);
  for (int64_t expert = 0; expert < num_experts_; ++expert) {
    const ExpertPlace& place = layout.place(layout.key(layer_, expert));
    for (const ExpertMatrix which : {ExpertMatrix::kW1, ExpertMatrix::kW2, ExpertMatrix::kW3}) {
      const StoredLinear& linear = place.linear[static_cast<int>(which)];
      const bool down = which == ExpertMatrix::kW2;
      require_shape(linear.module, {linear.out_features, linear.in_features},
                    {down ? dims_.latent : dims_.inner, down ? dims_.inner : dims_.latent});
    }
  }
}

Routing Moe::route(const Runtime& runtime, std::span<const float> h, int64_t tokens) const {
  // A product of f32 values that is not rounded, whatever the numerics.
  const std::vector<float> logits =
      apply_linear({.rounding = Rounding::kNone, .pool = runtime.pool, .profile = runtime.profile}, *gate_, h, tokens);
  Routing routing{.tokens = tokens, .top_k = top_k_, .expert = {}, .weight = {}};
  routing.expert.resize(block_size(tokens, top_k_));
  routing.weight.resize(block_size(tokens, top_k_));
  const size_t num_experts = static_cast<size_t>(num_experts_);
  std::vector<float> score(num_experts), biased(num_experts);
  std::vector<int32_t> order(num_experts);
  for (int64_t t = 0; t < tokens; ++t) {
    const std::span<int32_t> expert(routing.expert.data() + t * top_k_, static_cast<size_t>(top_k_));
    const bool ok = choose_experts(row_of(std::span(logits), t, num_experts_), bias_, routed_scaling_factor_,
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
  TREFOIL_CHECK(static_cast<int64_t>(experts.size()) == num_experts_);
  check_sizes(z, routing);
  const Assignments all(routing, num_experts_);
  const ExpertInput input(runtime, runtime.tile_mode(), z, dims_.latent);
  std::vector<float> sum(z.size()), out;
  std::vector<const ExpertLinears*> used;
  for (const ExpertBatch& batch : batches_of(all, dims_)) {
    used.clear();
    for (const ExpertGroup& group : batch.groups) used.push_back(&experts[static_cast<size_t>(group.expert)]);
    out.resize(block_size(batch.rows(), dims_.latent));
    expert_outputs(runtime, dims_, used, batch, input, routing.top_k, out);
    add_expert_outputs(runtime, batch, routing, out, dims_.latent, sum);
  }
  round_in_place(sum, runtime.rounding);
  return sum;
}

// Experts come as the drive brings them; their outputs are kept until all are there and added in ascending order, so the
// sum does not depend on the drive.
std::vector<float> Moe::streamed_sum(const Runtime& runtime, std::span<const float> z, const Routing& routing,
                                     ExpertReads* started) const {
  check_sizes(z, routing);
  const Assignments all(routing, num_experts_);
  const ExpertInput input(runtime, runtime.tile_mode(), z, dims_.latent);
  std::vector<float> sum(z.size()), out;
  for (const ExpertBatch& batch : batches_of(all, dims_)) {
    out.resize(block_size(batch.rows(), dims_.latent));
    std::vector<int32_t> wanted;
    for (const ExpertGroup& group : batch.groups) wanted.push_back(static_cast<int32_t>(group.expert));
    // Reads begun before serve when all tokens fit one batch; otherwise each batch begins its own.
    ExpertStore::Batch reads =
        started != nullptr && started->experts == wanted ? std::move(*started->batch) : store_->begin(layer_, wanted);
    while (reads.remaining() > 0) {
      const ExpertLease lease = reads.next();
      const ExpertLinears expert = {.w1 = make_stored_linear(lease.matrix(ExpertMatrix::kW1)),
                                    .w2 = make_stored_linear(lease.matrix(ExpertMatrix::kW2)),
                                    .w3 = make_stored_linear(lease.matrix(ExpertMatrix::kW3))};
      const auto at = std::lower_bound(wanted.begin(), wanted.end(), static_cast<int32_t>(lease.expert()));
      const ExpertGroup group = batch.groups[static_cast<size_t>(at - wanted.begin())];
      const ExpertBatch one = {
          .groups = {{group.expert, 0, group.count}},
          .assignment = batch.assignment.subspan(static_cast<size_t>(group.begin), static_cast<size_t>(group.count))};
      const ExpertLinears* const only = &expert;
      expert_outputs(
          runtime, dims_, {&only, 1}, one, input, routing.top_k,
          std::span(out).subspan(block_size(group.begin, dims_.latent), block_size(group.count, dims_.latent)));
    }
    add_expert_outputs(runtime, batch, routing, out, dims_.latent, sum);
  }
  round_in_place(sum, runtime.rounding);
  return sum;
}

ExpertReads Moe::begin_reads(const Routing& routing) const {
  ExpertReads reads;
  if (store_ == nullptr) return reads;
  reads.experts = used_experts(routing);
  reads.batch = std::make_unique<ExpertStore::Batch>(store_->begin(layer_, reads.experts));
  return reads;
}

void Moe::expect(const Routing& guess) const {
  store_->expect(layer_, used_experts(guess));
}

void Moe::check_sizes(std::span<const float> z, const Routing& routing) const {
  TREFOIL_CHECK(z.size() == block_size(routing.tokens, dims_.latent));
  TREFOIL_CHECK(routing.expert.size() == block_size(routing.tokens, routing.top_k));
  TREFOIL_CHECK(routing.weight.size() == routing.expert.size());
}

std::vector<float> Moe::finish(const Runtime& runtime, std::span<const float> h, std::span<const float> expert_sum,
                               int64_t tokens) const {
  return finish(runtime, expert_sum, tokens, shared(runtime, h, tokens));
}

std::vector<float> Moe::shared(const Runtime& runtime, std::span<const float> h, int64_t tokens) const {
  const ProfileScope scope(runtime.profile, ForwardPart::kSharedExperts);
  return shared_experts_.forward(runtime, h, tokens);
}

std::vector<float> Moe::finish(const Runtime& runtime, std::span<const float> expert_sum, int64_t tokens,
                               std::span<const float> shared) const {
  TREFOIL_CHECK(expert_sum.size() == block_size(tokens, dims_.latent));
  std::vector<float> normed(expert_sum.size());
  for (int64_t t = 0; t < tokens; ++t) {
    rms_norm(row_of(expert_sum, t, dims_.latent), norm_, norm_eps_, runtime.rounding,
             row_of(std::span(normed), t, dims_.latent));
  }
  std::vector<float> out = apply_linear(runtime, *up_proj_, normed, tokens);
  add(out, shared, runtime.rounding, out);
  return out;
}

}  // namespace trefoil
