// Which experts one token uses, and how much of each.
//   s = sigmoid(logits);  chosen = the top_k largest of s + bias;  weight_e = s_e / (sum of the chosen s + 1e-20) *
//   scaling
//
// The bias only chooses; weights come from the unbiased scores. Equal biased scores: the lower expert id wins. Chosen
// ids are returned ascending and their scores are summed in that order. logits, bias: [num_experts]; expert, weight:
// [top_k], top_k <= num_experts; scratch: [num_experts] floats and ids. Returns false, with the outputs unspecified,
// when a biased score is NaN.
#pragma once

#include <cstdint>
#include <span>

namespace trefoil {

struct RouterScratch {
  std::span<float> score, biased;  // [num_experts]
  std::span<int32_t> order;        // [num_experts]
};

[[nodiscard]] bool choose_experts(std::span<const float> logits, std::span<const float> bias, double scaling,
                                  const RouterScratch& scratch, std::span<int32_t> expert,
                                  std::span<float> weight) noexcept;

}  // namespace trefoil
