#include "eval/stream_probe.h"

#include <algorithm>
#include <cmath>

#include "model/linear.h"

namespace trefoil {
namespace {

// One token's experts.
struct Chosen {
  std::span<const int32_t> expert;  // ascending
  std::span<const float> weight;

  int32_t top() const {
    const auto largest = std::max_element(weight.begin(), weight.end());
    return expert[static_cast<size_t>(largest - weight.begin())];
  }
};

Chosen chosen_by(const Routing& routing, int64_t token) {
  const size_t begin = static_cast<size_t>(token * routing.top_k), count = static_cast<size_t>(routing.top_k);
  return {std::span(routing.expert).subspan(begin, count), std::span(routing.weight).subspan(begin, count)};
}

double overlap(const Chosen& a, const Chosen& b) {
  int64_t both = 0;
  for (const int32_t expert : a.expert) both += std::binary_search(b.expert.begin(), b.expert.end(), expert);
  return static_cast<double>(both) / static_cast<double>(a.expert.size());
}

// sigmoid scores of the given experts, renormalised; the logits are one token's, [num_experts].
std::vector<double> renormalised(std::span<const float> logits, std::span<const int32_t> experts) {
  std::vector<double> p;
  double sum = 0;
  for (const int32_t expert : experts) {
    p.push_back(1 / (1 + std::exp(-static_cast<double>(logits[static_cast<size_t>(expert)]))));
    sum += p.back();
  }
  for (double& value : p) value /= sum;
  return p;
}

double kl(std::span<const double> p, std::span<const double> q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) sum += p[i] * std::log(p[i] / q[i]);
  }
  return std::max(0.0, sum);
}

std::vector<float> router_logits(const LoadedModel& model, int64_t layer, std::span<const float> h, int64_t tokens,
                                 ThreadPool& pool) {
  const std::unique_ptr<LinearWeight> gate =
      model.weights->linear(moe_module(layer, "gate"), model.config.num_experts, model.config.hidden_size);
  return apply_linear({Rounding::kNone, &pool}, *gate, h, tokens);
}

}  // namespace

StreamProbe::StreamProbe(const LoadedModel& reference, const LoadedModel& candidate, ThreadPool& pool)
    : reference_(reference),
      candidate_(candidate),
      pool_(pool),
      layers_(static_cast<size_t>(reference.config.num_hidden_layers)) {}

void StreamProbe::add(int64_t layer, std::span<const int32_t> token_rows, const ResidualStream& reference,
                      const ResidualStream& candidate, const LayerStep& reference_step,
                      const LayerStep& candidate_step) {
  Layer& sums = layers_[static_cast<size_t>(layer)];
  sums.row.insert(sums.row.end(), token_rows.begin(), token_rows.end());
  for (int64_t t = 0; t < reference.tokens; ++t) {
    const std::span<const float> expected = row_of(std::span<const float>(reference.prefix), t, reference.hidden);
    const std::span<const float> found = row_of(std::span<const float>(candidate.prefix), t, candidate.hidden);
    sums.residual.add(expected, found);
    const double angle = cosine(expected, found);
    if (std::isnan(angle)) continue;
    sums.cosine_sum += angle;
    ++sums.cosines;
  }
  if (reference_step.routing.tokens > 0) add_routing(sums, layer, reference_step, candidate_step);
}

void StreamProbe::add_routing(Layer& layer, int64_t index, const LayerStep& reference, const LayerStep& candidate) {
  const int64_t tokens = reference.routing.tokens, experts = reference_.config.num_experts;
  const std::vector<float> expected = router_logits(reference_, index, reference.h, tokens, pool_);
  const std::vector<float> found = router_logits(candidate_, index, candidate.h, tokens, pool_);
  for (int64_t t = 0; t < tokens; ++t) {
    const Chosen ours = chosen_by(reference.routing, t), theirs = chosen_by(candidate.routing, t);
    layer.overlap.push_back(overlap(ours, theirs));
    layer.top1.push_back(ours.top() == theirs.top() ? 1 : 0);
    layer.router_kl.push_back(kl(renormalised(row_of(std::span<const float>(expected), t, experts), ours.expert),
                                 renormalised(row_of(std::span<const float>(found), t, experts), ours.expert)));
  }
}

std::vector<StreamLayerProbe> StreamProbe::layers(int64_t num_rows) const {
  std::vector<StreamLayerProbe> result;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    StreamLayerProbe probe;
    probe.layer = static_cast<int64_t>(l);
    probe.residual = layer.residual.spread();
    probe.relative_l2 = std::sqrt(probe.residual.mean);
    if (layer.cosines > 0) probe.cosine = layer.cosine_sum / static_cast<double>(layer.cosines);
    if (!layer.overlap.empty()) {
      const TokenRows rows{layer.row, num_rows};
      probe.topk_overlap = mean_by_row(rows, layer.overlap);
      probe.top1_agreement = mean_by_row(rows, layer.top1);
      probe.router_kl = mean_by_row(rows, layer.router_kl);
    }
    result.push_back(probe);
  }
  return result;
}

}  // namespace trefoil
