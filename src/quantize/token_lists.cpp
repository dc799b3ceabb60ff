#include "quantize/token_lists.h"

#include "base/check.h"

namespace trefoil {
namespace {

double mean_square(std::span<const float> row) {
  double sum = 0;
  for (float value : row) sum += static_cast<double>(value) * value;
  return sum / static_cast<double>(row.size());
}

void normalise_to_mean_one(std::vector<float>& weights, const std::vector<double>& raw) {
  double sum = 0;
  for (double value : raw) sum += value;
  const auto n = static_cast<double>(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) weights[i] = sum > 0 ? static_cast<float>(raw[i] * n / sum) : 1.0f;
}

}  // namespace

void append_tokens(std::vector<ExpertTokens>& experts, int64_t first_expert, const Routing& block,
                   int64_t first_token) {
  const auto count = static_cast<int64_t>(experts.size());
  for (int64_t token = 0; token < block.tokens; ++token) {
    for (int64_t slot = 0; slot < block.top_k; ++slot) {
      const auto at = static_cast<size_t>(token * block.top_k + slot);
      const int64_t expert = block.expert[at] - first_expert;
      if (expert < 0 || expert >= count) continue;
      ExpertTokens& list = experts[static_cast<size_t>(expert)];
      list.token.push_back(first_token + token);
      list.gate.push_back(block.weight[at]);
      list.weight.push_back(1.0f);
    }
  }
}

std::vector<double> effect_norms(std::span<const float> expert_sum, int64_t width, double rms_norm_eps) {
  const auto row = static_cast<size_t>(width);
  std::vector<double> norm(expert_sum.size() / row);
  for (size_t t = 0; t < norm.size(); ++t) norm[t] = mean_square(expert_sum.subspan(t * row, row)) + rms_norm_eps;
  return norm;
}

void weigh_by_effect(ExpertTokens& expert, std::span<const double> norm) {
  TREFOIL_CHECK(norm.size() == expert.token.size());
  std::vector<double> raw(expert.token.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    raw[i] = static_cast<double>(expert.gate[i]) * expert.gate[i] / norm[i];
  }
  normalise_to_mean_one(expert.weight, raw);
}

}  // namespace trefoil
