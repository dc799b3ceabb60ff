#include "checkpoint/quantization_config.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "checkpoint/json_object.h"
#include "checkpoint/json_splice.h"
#include "checkpoint/name_pattern.h"

namespace trefoil {
namespace {

constexpr std::string_view kRegexPrefix = "re:";
constexpr std::string_view kLinearClass = "Linear";

std::string text_or_empty(const JsonObject& object, std::string_view key) {
  return object.find(key) == nullptr ? std::string() : object.text(key);
}

// A string, or a boolean, which compressed-tensors reads as "group" (true) or null (false).
std::string read_actorder(const JsonObject& weights) {
  const Json* value = weights.find("actorder");
  if (value == nullptr) return {};
  if (value->is_boolean()) return value->get<bool>() ? "group" : "";
  return weights.text("actorder");
}

QuantizationGroup read_group(const JsonObject& groups, const std::string& name) {
  const JsonObject object = groups.object(name);
  QuantizationGroup group;
  group.name = name;
  group.format = text_or_empty(object, "format");
  group.targets = object.texts("targets");
  const JsonObject weights = object.object("weights");
  group.num_bits = static_cast<int>(weights.integer("num_bits", 1, 64));
  if (weights.find("group_size") != nullptr) {
    // -1 is an old spelling of "one group per row"
    group.group_size = std::max<int64_t>(0, weights.integer("group_size", -1, std::numeric_limits<int32_t>::max()));
  }
  group.strategy = text_or_empty(weights, "strategy");
  group.type = text_or_empty(weights, "type");
  group.symmetric = weights.find("symmetric") == nullptr || weights.boolean("symmetric");
  group.actorder = read_actorder(weights);
  group.observer = text_or_empty(weights, "observer");
  return group;
}

QuantizationConfig read_config(const JsonObject& object) {
  QuantizationConfig config;
  config.quant_method = text_or_empty(object, "quant_method");
  if (config.quant_method != "compressed-tensors") {
    fail(ErrorCode::kUnsupported, "{}: {}: expected \"compressed-tensors\", found \"{}\"", object.file(),
         object.path_of("quant_method"), config.quant_method);
  }
  config.format = text_or_empty(object, "format");
  config.version = text_or_empty(object, "version");
  config.quantization_status = text_or_empty(object, "quantization_status");
  if (object.find("ignore") != nullptr) config.ignore = object.texts("ignore");
  const JsonObject groups = object.object("config_groups");
  for (const auto& [name, unused] : object.demand("config_groups").items()) {
    config.groups.push_back(read_group(groups, name));
  }
  return config;
}

std::optional<QuantizationConfig> config_in(const JsonObject& object) {
  if (object.find("quantization_config") == nullptr) return std::nullopt;
  return read_config(object.object("quantization_config"));
}

}  // namespace

struct LinearMatcher::Entries {
  std::unordered_map<std::string, size_t> exact;  // name -> the first of `groups` that lists it
  std::vector<std::pair<NamePattern, size_t>> patterns;
  std::optional<size_t> any_linear;

  void add(const std::string& entry, size_t group) {
    if (entry.starts_with(kRegexPrefix)) {
      patterns.emplace_back(NamePattern(entry.substr(kRegexPrefix.size())), group);
    } else if (entry == kLinearClass) {
      if (!any_linear.has_value()) any_linear = group;
    } else {
      exact.emplace(entry, group);
    }
  }

  std::optional<size_t> find(std::string_view module) const {
    if (const auto found = exact.find(std::string(module)); found != exact.end()) return found->second;
    for (const auto& [pattern, group] : patterns) {
      if (pattern.matches(module)) return group;
    }
    return any_linear;
  }
};

LinearMatcher::LinearMatcher(const QuantizationConfig& config) : config_(config) {
  auto targets = std::make_shared<Entries>();
  auto ignore = std::make_shared<Entries>();
  for (size_t i = 0; i < config_.groups.size(); ++i) {
    for (const std::string& target : config_.groups[i].targets) targets->add(target, i);
  }
  for (const std::string& entry : config_.ignore) ignore->add(entry, 0);
  targets_ = std::move(targets);
  ignore_ = std::move(ignore);
}

std::optional<size_t> LinearMatcher::match_index(std::string_view module) const {
  const std::optional<size_t> group = targets_->find(module);
  if (!group.has_value() || ignore_->find(module).has_value()) return std::nullopt;
  return group;
}

const QuantizationGroup* LinearMatcher::match(std::string_view module) const {
  const std::optional<size_t> group = match_index(module);
  return group.has_value() ? &config_.groups[*group] : nullptr;
}

const QuantizationGroup* QuantizationConfig::match(std::string_view module) const {
  const std::optional<size_t> group = LinearMatcher(*this).match_index(module);
  return group.has_value() ? &groups[*group] : nullptr;
}

QuantizationConfigs parse_quantization_configs(std::string_view config_json, const std::string& file) {
  const Json document = parse_strict_json(config_json, file);
  const JsonObject top(document, "", file);
  QuantizationConfigs configs;
  configs.top = config_in(top);
  if (top.find("text_config") != nullptr) configs.nested = config_in(top.object("text_config"));
  return configs;
}

std::vector<std::string> kimi_k3_ignore_list() {
  return {
      // what the release lists
      "re:.*self_attn.*",
      "re:.*shared_experts.*",
      "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
      "re:.*lm_head.*",
      "re:.*vision_tower.*",
      "re:.*mm_projector.*",
      // the Linears it forgets. Anchored, because loaders also ask about "...experts.0.gate_proj" for w1.
      "re:.*block_sparse_moe\\.gate$",
      "re:.*block_sparse_moe\\.routed_expert_(up|down)_proj$",
      "re:.*_res_proj$",
  };
}

namespace {

Json optional_text(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

// Keys in alphabetical order on every level, as compressed-tensors writes them.
Json pack_quantized_json(const PackQuantizedSpec& spec) {
  const Json weights = {
      {"actorder", spec.num_bits == 4 ? Json(nullptr) : optional_text(spec.actorder)},
      {"block_structure", nullptr},
      {"dynamic", false},
      {"group_size", spec.group_size},
      {"num_bits", spec.num_bits},
      {"observer", spec.observer},
      {"observer_kwargs", Json::object()},
      {"scale_dtype", nullptr},
      {"strategy", "group"},
      {"symmetric", true},
      {"type", "int"},
      {"zp_dtype", nullptr},
  };
  const Json group = {
      {"format", "pack-quantized"},
      {"input_activations", nullptr},
      {"output_activations", nullptr},
      {"targets", Json::array({kLinearClass})},
      {"weights", weights},
  };
  return {
      {"config_groups", {{"group_0", group}}},
      {"format", "pack-quantized"},
      {"global_compression_ratio", nullptr},
      {"ignore", kimi_k3_ignore_list()},
      {"kv_cache_scheme", nullptr},
      {"quant_method", "compressed-tensors"},
      {"quantization_status", "compressed"},
      {"sparsity_config", Json::object()},
      {"transform_config", Json::object()},
      {"version", spec.layout == PackedLayout::kPadded ? "0.17.1" : "0.18.0"},
  };
}

// The JSON text with every line after the first indented by two more spaces.
std::string indented(const Json& value) {
  std::string result;
  for (const char c : value.dump(2)) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

}  // namespace

std::string write_quantized_config(std::string_view source_config_json, const PackQuantizedSpec& spec,
                                   const std::string& file) {
  const Json document = parse_strict_json(source_config_json, file);
  const JsonObject top(document, "", file);  // an object, or refused
  std::string config(source_config_json);
  for (const std::string_view key : {"quantization_config", "compression_config"}) {  // loaders read either
    config = remove_member(config, {"text_config"}, key);
    config = remove_member(config, {}, key);
  }
  config = append_member(config, "quantization_config", indented(pack_quantized_json(spec)));
  if (config.back() != '\n') config += '\n';
  return config;
}

}  // namespace trefoil
