// What one pair of logit vectors says about one token. docs/evaluation.md, "Per token".
//
// All arithmetic is f64 on f32 logits, with the maximum subtracted:
//   log p_v = (l_v - max l) - log sum_w exp(l_w - max l)
//   nll     = -log p_target                                         [nats]
//   KLD     = sum_v p_v (log p_v - log q_v) over the whole vocabulary, p the reference, q the candidate   [nats]
// Equal logits give exactly 0. The true KLD is never negative; rounding can leave about -1e-15, which is returned as 0.
// Ties in a maximum go to the lower token id, on both sides. No allocation; safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace trefoil {

constexpr int kTopAgreement = 5;

struct TokenScore {
  double nll = 0;
  double probability = 0;  // of the target
  double entropy = 0;      // nats
};

struct TokenComparison {
  double kld = 0;
  double delta_p = 0;       // candidate's probability of the target minus the reference's
  bool same_top1 = false;   // both put their largest logit on the same token
  double top5_overlap = 0;  // |top-5 of one and top-5 of the other| / 5 (of a vocabulary below 5: of all)
};

// The position of the first logit that is not finite.
std::optional<int64_t> first_non_finite(std::span<const float> logits);

// logits: [vocab], finite; 0 <= target < vocab.
TokenScore score_token(std::span<const float> logits, int32_t target);

// Both [vocab], finite. Also fills both scores.
TokenComparison compare_token(std::span<const float> reference, std::span<const float> candidate, int32_t target,
                              TokenScore* reference_score, TokenScore* candidate_score);

}  // namespace trefoil
