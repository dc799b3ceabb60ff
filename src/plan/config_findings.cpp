#include "plan/config_findings.h"

#include <optional>

#include "base/error.h"
#include "plan/model_facts.h"

namespace trefoil {
namespace {

using Severity = Finding::Severity;

// A Linear module named by one of its tensors; nothing for tensors that name none.
struct NamedLinear {
  std::string_view module;
  bool packed = false;
};

std::optional<NamedLinear> linear_of(const SourceTensor& tensor, const TensorInventory& inventory) {
  constexpr std::string_view kPacked = ".weight_packed";
  constexpr std::string_view kPlain = ".weight";
  if (tensor.name.ends_with(kPacked)) {
    return NamedLinear{tensor.name.substr(0, tensor.name.size() - kPacked.size()), true};
  }
  if (!tensor.name.ends_with(kPlain)) return std::nullopt;
  const std::optional<TensorIdentity> identity = inventory.identify(tensor.name);
  if (!identity.has_value() || identity->expected == nullptr) return std::nullopt;
  const bool is_linear =
      is_routed(identity->component) || is_plain_linear(tensor.name, *identity, identity->expected->shape);
  if (!is_linear) return std::nullopt;
  return NamedLinear{tensor.name.substr(0, tensor.name.size() - kPlain.size()), false};
}

// The config says "quantized" exactly where the tensors are packed, or a finding tells where not.
void check_coverage(const ModelSource& source, const QuantizationConfig& claim, std::vector<Finding>& findings) {
  const LinearMatcher matcher(claim);
  const TensorInventory inventory = source.inventory();
  int64_t claimed = 0, unclaimed = 0;
  std::string first_claimed, first_unclaimed;
  for_each_tensor(source, [&](const SourceTensor& tensor) {
    const std::optional<NamedLinear> linear = linear_of(tensor, inventory);
    if (!linear.has_value()) return;
    const bool matched = matcher.match_index(linear->module).has_value();
    if (matched && !linear->packed && claimed++ == 0) first_claimed = linear->module;
    if (!matched && linear->packed && unclaimed++ == 0) first_unclaimed = linear->module;
  });
  if (claimed > 0) {
    findings.push_back(
        {Severity::kWarning, fmt::format("quantization_config claims {} Linears that are stored plain, the "
                                         "first: {} (the tensors decide)",
                                         claimed, first_claimed)});
  }
  if (unclaimed > 0) {
    findings.push_back(
        {Severity::kError, fmt::format("quantization_config does not claim {} Linears that are packed, the "
                                       "first: {}",
                                       unclaimed, first_unclaimed)});
  }
}

std::string expected_format(const ExpertStorage& experts) {
  return experts.format == LinearFormat::kMxfp4 ? "mxfp4-pack-quantized" : "pack-quantized";
}

void check_scheme(const ModelSource& source, const QuantizationConfig& claim, std::vector<Finding>& findings) {
  const ExpertStorage& experts = source.experts;
  if (experts.format == LinearFormat::kPlain || claim.groups.empty()) return;
  const auto differs = [&](std::string_view key, const std::string& says, const std::string& is) {
    if (says == is) return;
    findings.push_back({Severity::kError, fmt::format("quantization_config says {} {}, the routed experts are {} ({})",
                                                      key, says.empty() ? "null" : says, is, describe(experts))});
  };
  const QuantizationGroup& group = claim.groups.front();
  differs("format", group.format.empty() ? claim.format : group.format, expected_format(experts));
  differs("num_bits", std::to_string(group.num_bits), std::to_string(experts.num_bits));
  differs("group_size", std::to_string(group.group_size), std::to_string(experts.group_size));
  differs("quantization_status", claim.quantization_status, "compressed");
  const bool layout_counts = experts.format == LinearFormat::kPackedInt && experts.num_bits == 3;
  if (layout_counts && source.checkpoint.has_value() && layout_of_version(claim.version) != experts.layout) {
    findings.push_back(
        {Severity::kError,
         fmt::format("quantization_config.version \"{}\" stands for the {} layout of 3-bit "
                     "rows, the tensors are {}",
                     claim.version, to_string(layout_of_version(claim.version)), to_string(experts.layout))});
  }
}

}  // namespace

std::vector<Finding> check_quantization_claims(const ModelSource& source) {
  std::vector<Finding> findings;
  const QuantizationConfig* claim = source.claim();
  if (claim == nullptr) {
    if (source.experts.format != LinearFormat::kPlain) {
      findings.push_back(
          {Severity::kError, "the routed experts are packed and config.json has no quantization_config"});
    }
    return findings;
  }
  if (source.quantization.top.has_value() && source.quantization.nested.has_value()) {
    findings.push_back(
        {Severity::kError,
         fmt::format("config.json has two quantization_configs: {} at the top level and {} in text_config",
                     source.quantization.top->format, source.quantization.nested->format)});
  }
  check_coverage(source, *claim, findings);
  check_scheme(source, *claim, findings);
  return findings;
}

}  // namespace trefoil
