#include "synthetic/router_bias.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"

namespace trefoil {
namespace {

constexpr double kSigma = 0.9;
constexpr double kLargestLoad = 0.9;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double capped_sum(const std::vector<double>& weights, double factor) {
  double sum = 0;
  for (const double weight : weights) sum += std::min(kLargestLoad, factor * weight);
  return sum;
}

// The factor with which the capped weights sum to `target`, which they can reach.
double factor_for(const std::vector<double>& weights, double target) {
  double low = 0;
  double high = 1;
  while (capped_sum(weights, high) < target) high *= 2;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (capped_sum(weights, middle) < target ? low : high) = middle;
  }
  return high;
}

}  // namespace

std::vector<double> log_normal_loads(int64_t num_experts, int64_t num_experts_per_token, const RandomStream& random) {
  const auto experts = static_cast<size_t>(num_experts);
  const double mean = static_cast<double>(num_experts_per_token) / static_cast<double>(num_experts);
  if (mean >= kLargestLoad) return std::vector<double>(experts, mean);
  std::vector<float> normal(static_cast<size_t>(round_up(num_experts, 2)));
  random.normal(0, normal);
  std::vector<double> loads(experts);
  for (size_t e = 0; e < experts; ++e) loads[e] = std::exp(kSigma * static_cast<double>(normal[e]));
  const double factor = factor_for(loads, static_cast<double>(num_experts_per_token));
  for (double& load : loads) load = std::min(kLargestLoad, factor * load);
  return loads;
}

std::vector<float> router_bias(const ModelConfig& config, SyntheticRouting routing, const RandomStream& random,
                               uint64_t first, uint64_t count) {
  std::vector<float> bias(count, 0.0f);
  if (routing == SyntheticRouting::kFlat || config.num_experts_per_token == config.num_experts) return bias;
  const double mean = static_cast<double>(config.num_experts_per_token) / static_cast<double>(config.num_experts);
  const double threshold = sigmoid(upper_normal_quantile(mean));
  const std::vector<double> loads = log_normal_loads(config.num_experts, config.num_experts_per_token, random);
  for (uint64_t i = 0; i < count; ++i) {
    bias[i] = static_cast<float>(threshold - sigmoid(upper_normal_quantile(loads[first + i])));
  }
  return bias;
}

}  // namespace trefoil
