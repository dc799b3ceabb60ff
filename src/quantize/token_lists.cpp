#include "quantize/token_lists.h"

#include <algorithm>

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

std::vector<ExpertTokens> tokens_by_expert(const Routing& routing, int64_t num_experts) {
  std::vector<ExpertTokens> experts(static_cast<size_t>(num_experts));
  for (int64_t token = 0; token < routing.tokens; ++token) {
    for (int64_t slot = 0; slot < routing.top_k; ++slot) {
      const auto at = static_cast<size_t>(token * routing.top_k + slot);
      TREFOIL_CHECK(routing.expert[at] >= 0 && routing.expert[at] < num_experts);
      ExpertTokens& expert = experts[static_cast<size_t>(routing.expert[at])];
      expert.token.push_back(token);
      expert.gate.push_back(routing.weight[at]);
      expert.weight.push_back(1.0f);
    }
  }
  return experts;
}

void weigh_by_effect(std::vector<ExpertTokens>& experts, std::span<const float> expert_sum, int64_t width,
                     double rms_norm_eps) {
  const size_t tokens = expert_sum.size() / static_cast<size_t>(width);
  std::vector<double> norm(tokens);
  for (size_t t = 0; t < tokens; ++t) {
    norm[t] =
        mean_square(expert_sum.subspan(t * static_cast<size_t>(width), static_cast<size_t>(width))) + rms_norm_eps;
  }
  for (ExpertTokens& expert : experts) {
    std::vector<double> raw(expert.token.size());
    for (size_t i = 0; i < raw.size(); ++i) {
      raw[i] = static_cast<double>(expert.gate[i]) * expert.gate[i] / norm[static_cast<size_t>(expert.token[i])];
    }
    normalise_to_mean_one(expert.weight, raw);
  }
}

std::vector<float> gather_rows(std::span<const float> values, int64_t width, std::span<const int64_t> token) {
  std::vector<float> rows(token.size() * static_cast<size_t>(width));
  for (size_t i = 0; i < token.size(); ++i) {
    const auto row = values.subspan(static_cast<size_t>(token[i] * width), static_cast<size_t>(width));
    std::copy(row.begin(), row.end(), rows.begin() + static_cast<std::ptrdiff_t>(i * static_cast<size_t>(width)));
  }
  return rows;
}

void scatter_add(const ExpertTokens& tokens, std::span<const float> rows, int64_t width, std::span<float> sum) {
  for (size_t i = 0; i < tokens.token.size(); ++i) {
    const float gate = tokens.gate[i];
    const float* from = rows.data() + i * static_cast<size_t>(width);
    float* to = sum.data() + static_cast<size_t>(tokens.token[i] * width);
    for (int64_t j = 0; j < width; ++j) to[j] += gate * from[j];
  }
}

}  // namespace trefoil
