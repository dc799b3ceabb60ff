#include "eval/token_stats.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trefoil {
namespace {

// The largest logits in order, ties by id.
struct TopIds {
  std::array<int32_t, kTopAgreement> id;
  int count = 0;
};

TopIds top_ids(std::span<const float> logits) {
  TopIds top;
  for (size_t v = 0; v < logits.size(); ++v) {
    const auto value_at = [&](int slot) { return logits[static_cast<size_t>(top.id[static_cast<size_t>(slot)])]; };
    if (top.count == kTopAgreement && logits[v] <= value_at(kTopAgreement - 1)) continue;
    int slot = top.count < kTopAgreement ? top.count++ : kTopAgreement - 1;
    for (; slot > 0 && logits[v] > value_at(slot - 1); --slot) {
      top.id[static_cast<size_t>(slot)] = top.id[static_cast<size_t>(slot - 1)];
    }
    top.id[static_cast<size_t>(slot)] = static_cast<int32_t>(v);
  }
  return top;
}

int overlap(const TopIds& a, const TopIds& b) {
  const auto end_b = b.id.begin() + b.count;
  return static_cast<int>(std::count_if(a.id.begin(), a.id.begin() + a.count,
                                        [&](int32_t id) { return std::find(b.id.begin(), end_b, id) != end_b; }));
}

TokenScore score_from(double target_shifted, double log_sum, double mean_shifted) {
  TokenScore score;
  score.nll = log_sum - target_shifted;
  score.probability = std::exp(-score.nll);
  score.entropy = std::max(0.0, log_sum - mean_shifted);
  return score;
}

}  // namespace

std::optional<int64_t> first_non_finite(std::span<const float> logits) {
  for (size_t v = 0; v < logits.size(); ++v) {
    if (!std::isfinite(logits[v])) return static_cast<int64_t>(v);
  }
  return std::nullopt;
}

TokenScore score_token(std::span<const float> logits, int32_t target) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0, weighted = 0;
  for (const float logit : logits) {
    const double shifted = static_cast<double>(logit) - top;
    const double e = std::exp(shifted);
    sum += e;
    weighted += e * shifted;
  }
  return score_from(static_cast<double>(logits[static_cast<size_t>(target)]) - top, std::log(sum), weighted / sum);
}

TokenComparison compare_token(std::span<const float> reference, std::span<const float> candidate, int32_t target,
                              TokenScore* reference_score, TokenScore* candidate_score) {
  const TopIds top_r = top_ids(reference), top_c = top_ids(candidate);
  const double max_r = reference[static_cast<size_t>(top_r.id[0])], max_c = candidate[static_cast<size_t>(top_c.id[0])];
  double sum_r = 0, sum_c = 0, weighted_r = 0, weighted_c = 0, difference = 0;
  for (size_t v = 0; v < reference.size(); ++v) {
    const double r = static_cast<double>(reference[v]) - max_r, c = static_cast<double>(candidate[v]) - max_c;
    const double er = std::exp(r), ec = std::exp(c);
    sum_r += er;
    sum_c += ec;
    weighted_r += er * r;
    weighted_c += ec * c;
    difference += er * (r - c);
  }
  const double log_r = std::log(sum_r), log_c = std::log(sum_c);
  const size_t t = static_cast<size_t>(target);
  *reference_score = score_from(static_cast<double>(reference[t]) - max_r, log_r, weighted_r / sum_r);
  *candidate_score = score_from(static_cast<double>(candidate[t]) - max_c, log_c, weighted_c / sum_c);

  TokenComparison result;
  result.kld = std::max(0.0, difference / sum_r - log_r + log_c);
  result.delta_p = candidate_score->probability - reference_score->probability;
  result.same_top1 = top_r.id[0] == top_c.id[0];
  result.top5_overlap = static_cast<double>(overlap(top_r, top_c)) / static_cast<double>(top_r.count);
  return result;
}

}  // namespace trefoil
