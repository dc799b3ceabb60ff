#include "quantize/source_experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr std::string_view kWrapperPrefix = "language_model.";
constexpr std::string_view kExpertsInfix = ".block_sparse_moe.experts.";

// The release wraps the text model; a text-only checkpoint does not.
std::string_view name_prefix(const Checkpoint& checkpoint) {
  for (std::string_view prefix : {kWrapperPrefix, std::string_view()}) {
    if (checkpoint.find(fmt::format("{}model.embed_tokens.weight", prefix)) != nullptr) return prefix;
  }
  fail(ErrorCode::kNotFound,
       "{}: no tensor model.embed_tokens.weight, with or without the prefix {}: not a Kimi-K3 checkpoint",
       checkpoint.folder().string(), kWrapperPrefix);
}

void require_mxfp4(const StoredLinear& linear) {
  if (linear.format == LinearFormat::kMxfp4) return;
  if (linear.format == LinearFormat::kPackedInt) {
    fail(ErrorCode::kUnsupported,
         "{}: already quantized to int{} group {}; quantize starts from the MXFP4 release (recode converts between int "
         "formats)",
         linear.module, linear.num_bits, linear.group_size);
  }
  fail(ErrorCode::kUnsupported,
       "{}: stored as a plain {} weight; quantize reads MXFP4 experts (weight_packed U8, weight_scale U8)",
       linear.module, to_string(linear.weight->info.dtype));
}

void require_shape(const StoredLinear& linear, int64_t out_features, int64_t in_features) {
  if (linear.out_features == out_features && linear.in_features == in_features) return;
  fail(ErrorCode::kCorrupt, "{}: weight is [{}, {}], expected [{}, {}] from config.json", linear.module,
       linear.out_features, linear.in_features, out_features, in_features);
}

RoutedExpert find_expert(const Checkpoint& checkpoint, const ModelConfig& config, std::string_view prefix,
                         int64_t layer, int64_t expert) {
  RoutedExpert found;
  for (ExpertPart part : kExpertParts) {
    StoredLinear linear = resolve_linear(checkpoint, expert_module(prefix, layer, expert, part));
    require_mxfp4(linear);
    const bool is_down = part == ExpertPart::kW2;
    require_shape(linear, is_down ? config.routed_expert_hidden_size : config.moe_intermediate_size,
                  is_down ? config.moe_intermediate_size : config.routed_expert_hidden_size);
    found.linear[static_cast<size_t>(part)] = std::move(linear);
  }
  return found;
}

// A tensor under an experts path that the config does not know about is not silently copied or dropped.
void refuse_unexpected_experts(const Checkpoint& checkpoint, const std::vector<MoeLayer>& layers) {
  std::vector<std::string_view> expected;
  for (const MoeLayer& layer : layers) {
    for (const RoutedExpert& expert : layer.experts) {
      for (const StoredLinear& linear : expert.linear) {
        expected.push_back(linear.packed->info.name);
        expected.push_back(linear.scale->info.name);
      }
    }
  }
  std::sort(expected.begin(), expected.end());
  for (const TensorRef& tensor : checkpoint.tensors()) {
    if (tensor.info.name.find(kExpertsInfix) == std::string::npos) continue;
    if (std::binary_search(expected.begin(), expected.end(), tensor.info.name)) continue;
    fail(ErrorCode::kCorrupt, "{}: belongs to no expert that config.json describes", tensor.info.name);
  }
}

}  // namespace

const char* to_string(ExpertPart part) {
  switch (part) {
    case ExpertPart::kW1:
      return "w1";
    case ExpertPart::kW2:
      return "w2";
    case ExpertPart::kW3:
      return "w3";
  }
  return "?";
}

std::string expert_module(std::string_view prefix, int64_t layer, int64_t expert, ExpertPart part) {
  return fmt::format("{}model.layers.{}{}{}.{}", prefix, layer, kExpertsInfix, expert, to_string(part));
}

std::vector<MoeLayer> find_routed_experts(const Checkpoint& checkpoint, const ModelConfig& config) {
  const std::string_view prefix = name_prefix(checkpoint);
  std::vector<MoeLayer> layers;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.is_moe(layer)) continue;
    MoeLayer moe{layer, {}};
    for (int64_t expert = 0; expert < config.num_experts; ++expert) {
      moe.experts.push_back(find_expert(checkpoint, config, prefix, layer, expert));
    }
    layers.push_back(std::move(moe));
  }
  if (layers.empty()) {
    fail(ErrorCode::kUnsupported,
         "{}: config.json describes no MoE layer (first_k_dense_replace {}, num_hidden_layers {})",
         checkpoint.folder().string(), config.first_k_dense_replace, config.num_hidden_layers);
  }
  refuse_unexpected_experts(checkpoint, layers);
  return layers;
}

}  // namespace trefoil
