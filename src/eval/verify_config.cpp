#include "eval/verify_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <set>

#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/json_object.h"
#include "checkpoint/quantization_config.h"
#include "eval/verify_check.h"

namespace trefoil {
namespace {

// Paths of every quantization_config (or compression_config, its old name) in the document.
void find_configs(const Json& value, const std::string& path, std::vector<std::string>& found) {
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items()) {
    const std::string here = path.empty() ? key : path + "." + key;
    if (key == "quantization_config" || key == "compression_config") {
      found.push_back(here);
    } else {
      find_configs(member, here, found);
    }
  }
}

struct Version {
  int major = 0;
  int minor = 0;
};

std::optional<Version> parse_version(const std::string& text) {
  Version version;
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  if (minor.ec != std::errc()) return std::nullopt;
  return version;
}

// The format's name is the same for both 3-bit layouts: the writer's version is all that tells a loader which it is.
void check_version(const std::string& text, const StoredAs& storage, CheckRecorder& check) {
  if (storage.format != LinearFormat::kPackedInt || storage.num_bits != 3) return;
  const bool is_dense = storage.layout == PackedLayout::kDense;
  const std::optional<Version> version = parse_version(text);
  const bool says_dense = version && (version->major > 0 || version->minor >= 18);
  if (!version || says_dense != is_dense) {
    check.fail("version", kConfigFile,
               is_dense ? "0.18.0 or later (the layout is dense)" : "0.17.1 (the layout is padded)",
               text.empty() ? "none" : text);
  }
}

void demand(bool holds, const std::string& key, const std::string& expected, const std::string& found,
            CheckRecorder& check) {
  if (!holds) check.fail(key, kConfigFile, expected, found.empty() ? "null" : found);
}

void check_group(const QuantizationGroup& group, const StoredAs& storage, CheckRecorder& check) {
  const std::string weights = group.name + ".weights.";
  const bool is_mxfp4 = storage.format == LinearFormat::kMxfp4;
  demand(group.format == to_string(storage.format), group.name + ".format", to_string(storage.format), group.format,
         check);
  demand(group.num_bits == storage.num_bits, weights + "num_bits", fmt::format("{}", storage.num_bits),
         fmt::format("{}", group.num_bits), check);
  demand(group.group_size == storage.group_size, weights + "group_size", fmt::format("{}", storage.group_size),
         fmt::format("{}", group.group_size), check);
  demand(group.strategy == "group", weights + "strategy", "group", group.strategy, check);
  demand(group.symmetric, weights + "symmetric", "true (no zero points are stored)", "false", check);
  demand(group.type == (is_mxfp4 ? "float" : "int"), weights + "type", is_mxfp4 ? "float" : "int", group.type, check);
  demand(group.actorder != "group" && group.actorder != "dynamic", weights + "actorder",
         "static or null (no weight_g_idx is stored)", group.actorder, check);
  if (storage.num_bits == 4 && !group.actorder.empty()) {
    check.warn(weights + "actorder", kConfigFile, "null (some 4-bit loaders read any value as group)", group.actorder);
  }
}

void check_claims(const QuantizationConfig& config, const StoredAs& storage, CheckRecorder& check) {
  demand(config.format == to_string(storage.format), "format", to_string(storage.format), config.format, check);
  demand(config.quantization_status == "compressed", "quantization_status", "compressed", config.quantization_status,
         check);
  check_version(config.version, storage, check);
  for (const QuantizationGroup& group : config.groups) check_group(group, storage, check);
  demand(!config.groups.empty(), "config_groups", "a group", "none", check);
}

// The name under which loaders of fused experts ask about this Linear; empty for all others.
std::string alias_of(const std::string& module) {
  const std::optional<ExpertTensorName> name = parse_expert_tensor_name(module + ".weight_packed");
  if (!name) return "";
  constexpr const char* kAliases[] = {"gate_proj", "down_proj", "up_proj"};  // of w1, w2, w3
  return module.substr(0, module.size() - 2) + kAliases[name->matrix - 1];
}

// Every Linear of the index as a module name, and whether it is packed. A 2-D weight that is not the embedding is one.
void for_each_linear(const FolderScan& scan,
                     const std::function<void(const std::string&, const ScannedTensor&, bool)>& visit) {
  constexpr std::string_view kPlain = ".weight";
  constexpr std::string_view kPacked = ".weight_packed";
  for (const ScannedTensor& tensor : scan.tensors()) {
    const std::string& name = tensor.info->name;
    if (name.ends_with(kPacked)) {
      visit(name.substr(0, name.size() - kPacked.size()), tensor, true);
    } else if (name.ends_with(kPlain) && tensor.info->shape.size() == 2 && !name.ends_with("embed_tokens.weight")) {
      visit(name.substr(0, name.size() - kPlain.size()), tensor, false);
    }
  }
}

void check_matching(const FolderScan& scan, const QuantizationConfig& config, bool is_release, CheckRecorder& check) {
  const LinearMatcher matcher(config);
  const auto compare = [&](const std::string& name, const ScannedTensor& tensor, bool is_packed) {
    check.count();
    const bool is_matched = matcher.match_index(name).has_value();
    if (is_matched == is_packed) return;
    const std::string expected =
        is_packed ? "targeted and not ignored (its weight is packed)" : "ignored (its weight is plain)";
    const std::string found = is_matched ? "targeted and not ignored" : "ignored or not targeted";
    if (is_release && !is_packed) {
      check.warn(name, scan.shard_name(tensor), expected, found);
    } else {
      check.fail(name, scan.shard_name(tensor), expected, found);
    }
  };
  for_each_linear(scan, [&](const std::string& module, const ScannedTensor& tensor, bool is_packed) {
    compare(module, tensor, is_packed);
    const std::string alias = is_packed ? alias_of(module) : "";
    if (!alias.empty()) compare(alias, tensor, is_packed);
  });
}

// An exact ignore entry inside an expert's name turns the expert off in loaders that look for substrings.
void check_substrings(const QuantizationConfig& config, const ExpertSet& experts, CheckRecorder& check) {
  std::set<int64_t> layers;
  for (const ExpertLinear& linear : experts.linears) {
    if (!layers.insert(linear.layer).second) continue;  // one of each layer will do
    for (const std::string& entry : config.ignore) {
      if (entry.starts_with("re:") || linear.module.find(entry) == std::string::npos) continue;
      check.warn(entry, kConfigFile, "no ignore entry inside an expert's name (some loaders match substrings)",
                 linear.module);
    }
  }
}

void check_parsed(const FolderScan& scan, const ExpertSet& experts, CheckRecorder& check) {
  std::vector<std::string> places;
  find_configs(parse_strict_json(*scan.config_text(), kConfigFile), "", places);
  if (places.size() != 1) {
    check.fail("quantization_config", kConfigFile, "exactly one",
               places.empty() ? "none" : fmt::format("{}: {}", places.size(), fmt::join(places, ", ")));
  }
  const QuantizationConfigs configs = parse_quantization_configs(*scan.config_text(), kConfigFile);
  const auto& config = configs.top ? configs.top : configs.nested;
  if (!config) return;
  if (experts.storage) check_claims(*config, *experts.storage, check);
  const bool is_release = experts.storage && experts.storage->format == LinearFormat::kMxfp4;
  check_matching(scan, *config, is_release, check);
  check_substrings(*config, experts, check);
}

}  // namespace

int claimed_bits(const FolderScan& scan) {
  if (!scan.config_text()) return 0;
  try {
    const QuantizationConfigs configs = parse_quantization_configs(*scan.config_text(), kConfigFile);
    const auto& config = configs.top ? configs.top : configs.nested;
    return config && !config->groups.empty() ? config->groups[0].num_bits : 0;
  } catch (const Error&) {
    return 0;  // check_config() reports it
  }
}

VerifyCheck check_config(const FolderScan& scan, const VerifyOptions& options, const ExpertSet& experts) {
  CheckRecorder check("config", "config.json has one quantization_config and it is true of every Linear",
                      "Linears and aliases", options.max_findings);
  if (!scan.config_error().empty()) check.fail("", kConfigFile, "a readable config", scan.config_error());
  if (!scan.config_text()) return std::move(check).finish();
  try {
    check_parsed(scan, experts, check);
  } catch (const Error& unreadable) {
    check.fail("quantization_config", kConfigFile, "one that can be read", unreadable.what());
  }
  return std::move(check).finish();
}

}  // namespace trefoil
