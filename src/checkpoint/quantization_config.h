// compressed-tensors' quantization_config inside config.json: what a checkpoint claims about its Linears, how targets
// and ignore entries match, and how a truthful one is written. docs/formats.md, "quantization_config".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/packed_int.h"

namespace trefoil {

struct QuantizationGroup {
  std::string name;                  // "group_0"
  std::string format;                // "pack-quantized", "mxfp4-pack-quantized"; empty when null
  std::vector<std::string> targets;  // exact names, class names ("Linear") or "re:..." (Python re.match)
  int num_bits = 0;
  int64_t group_size = 0;  // 0 when null
  std::string strategy;
  std::string type;  // "int", "float"
  bool symmetric = true;
  std::string actorder;  // "static", "group", ...; empty when null
  std::string observer;
};

struct QuantizationConfig {
  std::string quant_method;
  std::string format;
  std::string version;
  std::string quantization_status;
  std::vector<QuantizationGroup> groups;
  std::vector<std::string> ignore;

  // The group that quantizes a Linear of this module name: exact name, then regex, then class "Linear"; ties in config
  // order. Null when none matches or an ignore entry does. Error(kUnsupported) for a pattern that does not compile or
  // that takes too long. Compiles the patterns on every call: for many names use LinearMatcher.
  const QuantizationGroup* match(std::string_view module) const;
};

// A config's targets and ignore list, compiled once. Immutable; safe to use from several threads.
class LinearMatcher {
 public:
  // Keeps a copy of the config. Error(kUnsupported) for a pattern that does not compile.
  explicit LinearMatcher(const QuantizationConfig& config);

  // As QuantizationConfig::match; the group belongs to this matcher.
  const QuantizationGroup* match(std::string_view module) const;
  // The group's place in the config's list; nothing where match() is null.
  std::optional<size_t> match_index(std::string_view module) const;

 private:
  struct Entries;
  QuantizationConfig config_;
  std::shared_ptr<const Entries> targets_;
  std::shared_ptr<const Entries> ignore_;
};

// Where config.json carries quantization_config objects.
struct QuantizationConfigs {
  std::optional<QuantizationConfig> top;     // top level
  std::optional<QuantizationConfig> nested;  // inside text_config
};

QuantizationConfigs parse_quantization_configs(std::string_view config_json, const std::string& file);

// The settings of a pack-quantized output.
struct PackQuantizedSpec {
  int num_bits = 3;
  int64_t group_size = 64;
  PackedLayout layout = PackedLayout::kDense;  // version says "0.18.0" for dense, "0.17.1" for padded
  std::string actorder = "";                   // "static"; empty writes null, as 4 bits always do: vllm#41161
  std::string observer = "memoryless_minmax";
};

// The ignore entries of a written config: every Linear of Kimi-K3 that is not a routed expert, and no routed expert,
// also not under the names loaders give them (w1 -> gate_proj, w3 -> up_proj, w2 -> down_proj).
std::vector<std::string> kimi_k3_ignore_list();

// `source_config_json` with every quantization_config removed (top level and text_config) and exactly one written as
// the last member of the top level. Every other byte is kept. Target "Linear", ignore kimi_k3_ignore_list(); keys
// sorted inside. The result ends with a newline. Error(kCorrupt) when the source is not a JSON object.
std::string write_quantized_config(std::string_view source_config_json, const PackQuantizedSpec& spec,
                                   const std::string& file);

}  // namespace trefoil
