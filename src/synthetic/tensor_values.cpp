#include "synthetic/tensor_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "synthetic/random_stream.h"
#include "synthetic/router_bias.h"
#include "tensor/bf16.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

// ---- the trunk ----

enum class Values {
  kNormal,     // a * N
  kLinear,     // a * N / sqrt(in_features)
  kAroundOne,  // 1 + a * N
  kUniform,    // a to b
  kPerHead,    // a to b for each KDA head, then zeros
  kRouterBias,
};

struct Rule {
  std::string_view suffix;
  Values values;
  float a;
  float b;
};

// The first whose suffix the name has. Every Linear keeps the RMS of its input; the ones that write into the residual
// stream halve it, so that a block of 12 layers sums to an RMS of a few.
constexpr Rule kRules[] = {
    {"embed_tokens.weight", Values::kNormal, 1.0f, 0},
    // Small: SiLU is nearly linear there, so that little of its mean, which all tokens share, reaches the routers.
    {"v_conv1d.weight", Values::kNormal, 0.1f, 0},
    {"_conv1d.weight", Values::kNormal, 0.05f, 0},
    {"A_log", Values::kPerHead, 0.0f, 2.7725887f},  // the logarithm of 1 to 16
    {"dt_bias", Values::kUniform, -4.0f, 1.0f},
    {"e_score_correction_bias", Values::kRouterBias, 0, 0},
    {"norm.weight", Values::kAroundOne, 0.1f, 0},
    {"self_attn.o_proj.weight", Values::kLinear, 0.5f, 0},
    {"mlp.down_proj.weight", Values::kLinear, 0.5f, 0},
    {"shared_experts.down_proj.weight", Values::kLinear, 0.5f, 0},
    {"routed_expert_up_proj.weight", Values::kLinear, 0.5f, 0},
    {".weight", Values::kLinear, 1.0f, 0},
};

const Rule& rule_of(std::string_view name) {
  const auto* const rule =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& r) { return name.ends_with(r.suffix); });
  TREFOIL_CHECK(rule != std::end(kRules));
  return *rule;
}

// The same times `scale` plus `offset`.
void scale_and_shift(std::span<float> values, float scale, float offset) {
  for (float& value : values) value = offset + scale * value;
}

float linear_sigma(float gain, int64_t in_features) {
  return gain / static_cast<float>(std::sqrt(static_cast<double>(in_features)));
}

std::vector<std::byte> as_stored(DType dtype, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(element_size(dtype)));
  if (dtype == DType::kF32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  TREFOIL_CHECK(dtype == DType::kBF16);
  for (size_t i = 0; i < values.size(); ++i) store(bytes.data() + 2 * i, f32_to_bf16(values[i]));
  return bytes;
}

// ---- the experts ----

// The release's first experts have 82 % of their scales at 2^-6 and 17 % at 2^-7, which the ceil rule gives for normal
// weights of 0.0243, at 3,584 inputs 1.45 / sqrt(in_features).
constexpr float kExpertGain = 1.45f;

std::span<uint8_t> as_u8(std::span<std::byte> bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

TensorValues::TensorValues(const ModelConfig& config, uint64_t seed, SyntheticRouting routing)
    : config_(config), seed_(seed), routing_(routing) {}

std::vector<float> TensorValues::values(const TensorPlan& tensor, uint64_t first, uint64_t count) const {
  const RandomStream random(seed_, tensor.name);
  const Rule& rule = rule_of(tensor.name);
  std::vector<float> drawn(round_up(static_cast<int64_t>(count), 2));
  switch (rule.values) {
    case Values::kNormal:
    case Values::kLinear:
    case Values::kAroundOne:
      random.normal(first, drawn);
      break;
    case Values::kUniform:
    case Values::kPerHead:
      random.uniform(first, drawn);
      break;
    case Values::kRouterBias:
      return router_bias(config_, routing_, random, first, count);
  }
  drawn.resize(count);
  switch (rule.values) {
    case Values::kNormal:
      scale_and_shift(drawn, rule.a, 0);
      break;
    case Values::kLinear:
      scale_and_shift(drawn, linear_sigma(rule.a, tensor.shape.back()), 0);
      break;
    case Values::kAroundOne:
      scale_and_shift(drawn, rule.a, 1);
      break;
    default:
      scale_and_shift(drawn, rule.b - rule.a, rule.a);
  }
  if (rule.values == Values::kPerHead) {
    const auto heads = static_cast<uint64_t>(config_.kda_num_heads);
    for (uint64_t i = std::max(first, heads); i < first + count; ++i) drawn[i - first] = 0;
  }
  return drawn;
}

std::vector<std::byte> TensorValues::plain(const TensorPlan& tensor, uint64_t first, uint64_t count) const {
  return as_stored(tensor.dtype, values(tensor, first, count));
}

std::vector<std::byte> TensorValues::expert(std::string_view module, int64_t out_features, int64_t in_features) const {
  const auto rows = static_cast<size_t>(out_features);
  const auto cols = static_cast<size_t>(in_features);
  const size_t packed_cols = cols / 2;
  const size_t groups = cols / kMxfp4GroupSize;
  std::vector<std::byte> bytes(rows * (packed_cols + groups));
  const std::span<uint8_t> packed = as_u8(std::span(bytes).first(rows * packed_cols));
  const std::span<uint8_t> scale = as_u8(std::span(bytes).subspan(rows * packed_cols));
  const RandomStream random(seed_, module);
  const float sigma = linear_sigma(kExpertGain, in_features);
  std::vector<float> row(cols);
  for (size_t r = 0; r < rows; ++r) {
    random.normal(r * cols, row);
    scale_and_shift(row, sigma, 0);
    mxfp4_encode_row(row, packed.subspan(r * packed_cols, packed_cols), scale.subspan(r * groups, groups));
  }
  return bytes;
}

}  // namespace trefoil
