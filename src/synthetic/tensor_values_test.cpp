#include "synthetic/tensor_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "synthetic/router_bias.h"
#include "synthetic/synthetic_config.h"
#include "tensor/bf16.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

constexpr int64_t kRows = 256;
constexpr int64_t kCols = 3584;

std::vector<float> floats_of(const TensorPlan& tensor, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(element_size(tensor.dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.dtype == DType::kF32 ? load<float>(bytes.data() + 4 * i)
                                            : bf16_to_f32(load<uint16_t>(bytes.data() + 2 * i));
  }
  return values;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments_of(const std::vector<float>& values) {
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const auto count = static_cast<double>(values.size());
  return {sum / count, std::sqrt(squares / count - sum / count * (sum / count))};
}

const TensorValues& release_values() {
  static const TensorValues values(kimi_k3_config(), 5, SyntheticRouting::kFlat);
  return values;
}

Moments moments_of(const std::string& suffix, DType dtype, Shape shape) {
  const TensorPlan tensor = {"language_model.model.layers.1." + suffix, dtype, std::move(shape)};
  return moments_of(floats_of(tensor, release_values().plain(tensor, 0, 1 << 20)));
}

TEST(TensorValues, LinearsFollowTheirInputs) {
  constexpr double kTolerance = 0.005;  // of 2^20 numbers: 7 standard deviations
  const auto expect = [&](const std::string& suffix, int64_t in_features, double gain) {
    const Moments moments = moments_of(suffix, DType::kBF16, {1 << 20, in_features});
    EXPECT_NEAR(moments.deviation * std::sqrt(static_cast<double>(in_features)) / gain, 1, kTolerance) << suffix;
    EXPECT_NEAR(moments.mean / moments.deviation, 0, kTolerance) << suffix;
  };
  expect("self_attn.q_proj.weight", 7168, 1);
  expect("block_sparse_moe.gate.weight", 7168, 1);
  expect("block_sparse_moe.routed_expert_down_proj.weight", 7168, 1);
  expect("self_attn.o_proj.weight", 12288, 0.5);
  expect("block_sparse_moe.routed_expert_up_proj.weight", 3584, 0.5);
  expect("block_sparse_moe.shared_experts.down_proj.weight", 6144, 0.5);
  expect("mlp.down_proj.weight", 33792, 0.5);
}

TEST(TensorValues, NormsAreNearOne) {
  const Moments moments = moments_of("input_layernorm.weight", DType::kBF16, {1 << 20});
  EXPECT_NEAR(moments.mean, 1, 0.001);
  EXPECT_NEAR(moments.deviation, 0.1, 0.001);
}

TEST(TensorValues, ALogIsPerHeadAndPaddedWithZeros) {
  const TensorPlan tensor = {"language_model.model.layers.1.self_attn.A_log", DType::kF32, {128}};
  const std::vector<float> values = floats_of(tensor, release_values().plain(tensor, 0, 128));
  for (size_t i = 0; i < 96; ++i) {
    EXPECT_GT(values[i], 0.0f) << i;
    EXPECT_LT(values[i], std::log(16.0f)) << i;
  }
  for (size_t i = 96; i < 128; ++i) EXPECT_EQ(values[i], 0.0f) << i;
}

TEST(TensorValues, PartsAreThoseOfTheWhole) {
  const TensorPlan tensor = {"language_model.lm_head.weight", DType::kBF16, {10, 100}};
  const std::vector<std::byte> whole = release_values().plain(tensor, 0, 1000);
  const std::vector<std::byte> part = release_values().plain(tensor, 600, 400);
  ASSERT_EQ(part.size(), 800u);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1200));
}

// The published census of the release's first experts: 82 % of the scales 2^-6, 17 % 2^-7.
TEST(TensorValues, ExpertsHaveTheScalesOfTheRelease) {
  const std::vector<std::byte> bytes = release_values().expert("experts.0.w1", kRows, kCols);
  const size_t packed = static_cast<size_t>(kRows * kCols / 2);
  ASSERT_EQ(bytes.size(), packed + static_cast<size_t>(kRows * kCols / 32));
  std::map<int, double> share;
  for (size_t i = packed; i < bytes.size(); ++i) {
    share[static_cast<int>(bytes[i])] += 1 / static_cast<double>(bytes.size() - packed);
  }
  EXPECT_NEAR(share[0x79], 0.82, 0.02);
  EXPECT_NEAR(share[0x78], 0.17, 0.02);
}

TEST(TensorValues, ExpertsAreNormal) {
  const std::vector<std::byte> bytes = release_values().expert("experts.0.w1", kRows, kCols);
  const auto* packed = reinterpret_cast<const uint8_t*>(bytes.data());
  std::vector<float> values(static_cast<size_t>(kRows * kCols));
  for (size_t row = 0; row < kRows; ++row) {
    const std::span<const uint8_t> codes(packed + row * kCols / 2, kCols / 2);
    const std::span<const uint8_t> scales(packed + kRows * kCols / 2 + row * kCols / 32, kCols / 32);
    ASSERT_TRUE(mxfp4_decode_row(codes, scales, std::span(values).subspan(row * kCols, kCols)));
  }
  const Moments moments = moments_of(values);
  EXPECT_NEAR(moments.mean, 0, 1e-4);
  // Rounding to the grid adds its own error, a little over 1 % of the variance.
  EXPECT_NEAR(moments.deviation, 0.0243, 0.0003);
}

TEST(RouterBias, FlatIsZero) {
  const std::vector<float> bias =
      router_bias(kimi_k3_config(), SyntheticRouting::kFlat, RandomStream(0, "bias"), 0, 896);
  EXPECT_EQ(bias, std::vector<float>(896, 0.0f));
}

TEST(RouterBias, LogNormalLoadsSumToTheExpertsOfAToken) {
  const std::vector<double> loads = log_normal_loads(896, 16, RandomStream(0, "bias"));
  double sum = 0;
  double logs = 0;
  double squares = 0;
  for (const double load : loads) {
    sum += load;
    logs += std::log(load) / 896;
    squares += std::log(load) * std::log(load) / 896;
  }
  EXPECT_NEAR(sum, 16, 1e-9);
  EXPECT_NEAR(std::sqrt(squares - logs * logs), 0.9, 0.07);
}

TEST(RouterBias, NoLoadIsOverItsCap) {
  const std::vector<double> loads = log_normal_loads(32, 16, RandomStream(0, "bias"));
  double sum = 0;
  for (const double load : loads) {
    EXPECT_LE(load, 0.9);
    sum += load;
  }
  EXPECT_NEAR(sum, 16, 1e-9);
  EXPECT_EQ(log_normal_loads(16, 15, RandomStream(0, "bias")), std::vector<double>(16, 15.0 / 16));
}

// With logits drawn from the normal distribution, the largest k of sigmoid + bias hit every expert as often as asked.
TEST(RouterBias, MakesEveryExpertAsFrequentAsAsked) {
  ModelConfig config = kimi_k3_config();
  config.num_experts = 64;
  config.num_experts_per_token = 4;
  const RandomStream random(2, "bias");
  const std::vector<float> bias = router_bias(config, SyntheticRouting::kLogNormal, random, 0, 64);
  const std::vector<double> loads = log_normal_loads(64, 4, random);
  constexpr int kTokens = 20'000;
  std::vector<double> share(64);
  std::vector<float> logits(64);
  std::vector<std::pair<float, size_t>> scores(64);
  for (int token = 0; token < kTokens; ++token) {
    RandomStream(9, "logits").normal(static_cast<uint64_t>(token) * 64, logits);
    for (size_t e = 0; e < 64; ++e) scores[e] = {1 / (1 + std::exp(-logits[e])) + bias[e], e};
    std::nth_element(scores.begin(), scores.begin() + 4, scores.end(), std::greater<>());
    for (size_t i = 0; i < 4; ++i) share[scores[i].second] += 1.0 / kTokens;
  }
  // The threshold of a token varies, so shares are near what was asked and not equal to it.
  for (size_t e = 0; e < 64; ++e) EXPECT_NEAR(std::log(share[e] / loads[e]), 0, 0.5) << e << " " << loads[e];
}

}  // namespace
}  // namespace trefoil
