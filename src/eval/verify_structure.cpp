#include <fmt/format.h>

#include <charconv>
#include <map>
#include <tuple>

#include "base/bytes.h"
#include "eval/verify_check.h"
#include "eval/verify_experts.h"

namespace trefoil {
namespace {

constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kExperts = ".block_sparse_moe.experts.";

// Takes a decimal number without sign or leading zero off the front of `text`.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || number < 0 || (length > 1 && text[0] == '0') || text[0] == '-') return std::nullopt;
  text.remove_prefix(length);
  return number;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

using Key = std::tuple<int64_t, int64_t, int>;  // layer, expert, matrix
using ExpertMap = std::map<Key, ExpertLinear>;

// What stands before "model.layers." in this checkpoint's names: "language_model." in the release.
std::string find_prefix(const FolderScan& scan) {
  for (const ScannedTensor& tensor : scan.tensors()) {
    const size_t at = tensor.info->name.find(kLayers);
    if (at != std::string::npos) return tensor.info->name.substr(0, at);
  }
  return "";
}

ExpertMap promised_experts(const ModelConfig& config, const std::string& prefix) {
  ExpertMap map;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.is_moe(layer)) continue;
    for (int64_t expert = 0; expert < config.num_experts; ++expert) {
      for (int matrix = 1; matrix <= 3; ++matrix) {
        ExpertLinear linear;
        linear.module = fmt::format("{}{}{}{}{}.w{}", prefix, kLayers, layer, kExperts, expert, matrix);
        linear.layer = layer;
        linear.expert = expert;
        linear.matrix = matrix;
        linear.out_features = matrix == 2 ? config.routed_expert_hidden_size : config.moe_intermediate_size;
        linear.in_features = matrix == 2 ? config.moe_intermediate_size : config.routed_expert_hidden_size;
        map.emplace_hint(map.end(), Key{layer, expert, matrix}, std::move(linear));
      }
    }
  }
  return map;
}

// The Linear a tensor belongs to; null when the config promises none of that name.
ExpertLinear* owner_of(const ExpertTensorName& name, bool is_promised, ExpertMap& map) {
  const Key key{name.layer, name.expert, name.matrix};
  auto it = map.find(key);
  if (it == map.end() && !is_promised) {
    ExpertLinear linear;
    linear.module = std::string(name.module);
    linear.layer = name.layer;
    linear.expert = name.expert;
    linear.matrix = name.matrix;
    it = map.emplace(key, std::move(linear)).first;
  }
  return it != map.end() && it->second.module == name.module ? &it->second : nullptr;
}

void assign_tensor(const FolderScan& scan, const ScannedTensor& tensor, bool is_promised, ExpertMap& map,
                   CheckRecorder& check) {
  const std::string& name = tensor.info->name;
  const std::optional<ExpertTensorName> parts = parse_expert_tensor_name(name);
  if (!parts) {
    if (name.ends_with(".weight_packed")) {
      check.warn(name, scan.shard_name(tensor), "only routed experts are packed", "another Linear, not looked into");
    }
    return;
  }
  ExpertLinear* linear = owner_of(*parts, is_promised, map);
  if (linear == nullptr) {
    check.fail(name, scan.shard_name(tensor), "an expert the config has", "no such layer, expert or prefix");
  } else if (parts->suffix == "weight_packed") {
    linear->packed = &tensor;
  } else if (parts->suffix == "weight_scale") {
    linear->scale = &tensor;
  } else if (parts->suffix == "weight_shape") {
    linear->shape = &tensor;
  } else {
    check.fail(name, scan.shard_name(tensor), "weight_packed, weight_scale and weight_shape only",
               std::string(parts->suffix));
  }
}

void check_companions(const FolderScan& scan, const ExpertLinear& linear, CheckRecorder& check) {
  const std::string file = linear.packed != nullptr ? scan.shard_name(*linear.packed) : "";
  const bool is_mxfp4 = linear.packed != nullptr && linear.packed->info->dtype == DType::kU8;
  if (linear.packed == nullptr) check.fail(linear.module + ".weight_packed", file, "present", "missing");
  if (linear.scale == nullptr) check.fail(linear.module + ".weight_scale", file, "present", "missing");
  if (linear.shape == nullptr && !is_mxfp4) check.fail(linear.module + ".weight_shape", file, "present", "missing");
  if (linear.shape != nullptr && is_mxfp4) {
    check.fail(linear.module + ".weight_shape", file, "none beside MXFP4 (U8) weights", "present");
  }
}

}  // namespace

std::optional<ExpertTensorName> parse_expert_tensor_name(std::string_view name) {
  const size_t at = name.find(kLayers);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = name.substr(at + kLayers.size());
  ExpertTensorName parts;
  const auto layer = take_number(rest);
  if (!layer || !take(rest, kExperts)) return std::nullopt;
  const auto expert = take_number(rest);
  if (!expert || !take(rest, ".w")) return std::nullopt;
  const auto matrix = take_number(rest);
  if (!matrix || *matrix < 1 || *matrix > 3 || !take(rest, ".")) return std::nullopt;
  parts.layer = *layer;
  parts.expert = *expert;
  parts.matrix = static_cast<int>(*matrix);
  parts.suffix = rest;
  parts.module = name.substr(0, name.size() - rest.size() - 1);
  return parts;
}

VerifyCheck check_structure(const FolderScan& scan, const VerifyOptions& options, ExpertSet* experts) {
  CheckRecorder check("structure", "every routed expert Linear has its tensors and no others", "expert Linears",
                      options.max_findings);
  const bool is_promised = scan.config().has_value();
  ExpertMap map = is_promised ? promised_experts(*scan.config(), find_prefix(scan)) : ExpertMap();
  if (!is_promised)
    check.note("config.json cannot be read: experts are taken from the tensor names, none can be missed");
  for (const ScannedTensor& tensor : scan.tensors()) assign_tensor(scan, tensor, is_promised, map, check);
  for (auto& [key, linear] : map) {
    check_companions(scan, linear, check);
    experts->linears.push_back(std::move(linear));
  }
  check.count(experts->linears.size());
  if (experts->linears.empty()) check.fail("", "", "routed experts", "none");
  return std::move(check).finish();
}

}  // namespace trefoil
