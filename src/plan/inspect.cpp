#include "trefoil/inspect.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "checkpoint/name_pattern.h"
#include "plan/config_findings.h"
#include "plan/model_facts.h"

namespace trefoil {
namespace {

std::vector<ComponentSize> component_sizes(const ModelFacts& facts) {
  std::vector<ComponentSize> sizes;
  for (size_t i = 0; i < kNumComponents; ++i) {
    const ComponentFacts& found = facts.components[i];
    const auto component = static_cast<Component>(i);
    if (found.tensors == 0) continue;
    sizes.push_back({to_string(component), is_text(component), found.tensors, found.parameters, found.bytes});
  }
  if (facts.unknown.tensors > 0) {
    sizes.push_back({"unknown names", false, facts.unknown.tensors, 0, facts.unknown.bytes});
  }
  return sizes;
}

std::vector<LayerSummary> layer_summaries(const ModelConfig& config, const ModelFacts& facts) {
  std::vector<LayerSummary> layers;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerFacts& found = facts.layers[static_cast<size_t>(layer)];
    layers.push_back({layer, config.is_kda(layer) ? "KDA" : "MLA", config.is_moe(layer) ? "MoE" : "dense",
                      found.tensors, found.experts, found.bytes});
  }
  return layers;
}

double bits_per_weight(uint64_t bytes, uint64_t parameters) {
  return parameters == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

std::vector<FormatSummary> format_summaries(const ModelSource& source, const ModelFacts& facts) {
  std::vector<FormatSummary> formats;
  const ComponentFacts& routed = facts.of(Component::kRoutedPacked);
  if (routed.tensors > 0) {
    formats.push_back({describe(source.experts), routed.tensors, routed.parameters, facts.routed_bytes(),
                       bits_per_weight(facts.routed_bytes(), routed.parameters)});
  }
  for (const auto& [dtype, summary] : facts.plain_linears) {
    const auto same =
        std::find_if(formats.begin(), formats.end(), [&name = dtype](const auto& f) { return f.format == name; });
    FormatSummary& format = same != formats.end() ? *same : formats.emplace_back();
    format.format = dtype;
    format.linears += summary.linears;
    format.parameters += summary.parameters;
    format.bytes += summary.bytes;
    format.bits_per_weight = bits_per_weight(format.bytes, format.parameters);
  }
  return formats;
}

std::vector<Finding> all_findings(const ModelSource& source, const ModelFacts& facts) {
  std::vector<Finding> findings = source.findings;
  findings.insert(findings.end(), facts.findings.begin(), facts.findings.end());
  std::vector<Finding> claims = check_quantization_claims(source);
  std::move(claims.begin(), claims.end(), std::back_inserter(findings));
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return findings;
}

// A pattern that someone typed: whatever is wrong with it is wrong with the command line.
NamePattern pattern_argument(const std::string& pattern) {
  try {
    return NamePattern(pattern, NamePattern::Anchor::kAnywhere);
  } catch (const Error& refused) {
    fail(ErrorCode::kInvalidArgument, "{}", refused.what());
  }
}

}  // namespace

const char* to_string(Finding::Severity severity) {
  switch (severity) {
    case Finding::Severity::kNote:
      return "note";
    case Finding::Severity::kWarning:
      return "warning";
    case Finding::Severity::kError:
      return "error";
  }
  return "unknown";
}

bool InspectReport::ok() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.severity == Finding::Severity::kError; });
}

InspectReport inspect(const ModelFiles& files) {
  const ModelSource source = read_model_source(files);
  const ModelFacts facts = gather_facts(source);
  const ModelConfig& config = source.config;

  InspectReport report;
  report.path = source.path;
  report.model_type = config.model_type;
  report.num_hidden_layers = config.num_hidden_layers;
  report.hidden_size = config.hidden_size;
  report.vocab_size = config.vocab_size;
  report.num_experts = config.num_experts;
  report.num_experts_per_token = config.num_experts_per_token;
  report.attn_res_block_size = config.attn_res_block_size;
  report.max_position_embeddings = config.max_position_embeddings;

  report.num_tensors = static_cast<int64_t>(source.num_tensors());
  report.num_shards = static_cast<int64_t>(source.shards.size());
  report.shards_present = source.shards_present;
  report.sizes_from_headers = source.checkpoint.has_value();
  report.total_bytes = facts.total_bytes + facts.unknown.bytes;
  report.declared_total_size = source.declared_total_size;

  report.components = component_sizes(facts);
  report.layers = layer_summaries(config, facts);
  report.formats = format_summaries(source, facts);
  report.expert_format = describe(source.experts);
  report.routed_bits_per_weight = bits_per_weight(facts.routed_bytes(), facts.of(Component::kRoutedPacked).parameters);
  report.per_token = token_traffic(source, facts);
  report.findings = all_findings(source, facts);
  return report;
}

std::vector<TensorRow> list_tensors(const ModelFiles& files, const std::string& pattern) {
  const NamePattern wanted = pattern_argument(pattern);
  const ModelSource source = read_model_source(files);
  const TensorInventory inventory = source.inventory();
  std::vector<TensorRow> rows;
  for_each_tensor(source, [&](const SourceTensor& tensor) {
    if (!wanted.matches(tensor.name)) return;
    TensorRow row;
    row.name = std::string(tensor.name);
    row.shard = source.shards[tensor.shard];
    const std::optional<TensorIdentity> identity = inventory.identify(tensor.name);
    if (identity.has_value()) row.component = to_string(identity->component);
    if (tensor.info != nullptr) {
      row.dtype = to_string(tensor.info->dtype);
      row.shape = tensor.info->shape;
      row.bytes = tensor.info->size();
    } else if (identity.has_value() && identity->expected != nullptr) {
      row.dtype = to_string(identity->expected->dtype);
      row.shape = identity->expected->shape;
      row.bytes = identity->expected->bytes;
    }
    rows.push_back(std::move(row));
  });
  return rows;
}

}  // namespace trefoil
