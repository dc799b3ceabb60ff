// The report of inspect() for people and for programs.
#include <fmt/format.h>
#include <algorithm>

#include "base/bytes.h"
#include "plan/findings_text.h"
#include "plan/text_table.h"
#include "tensor/tensor_view.h"
#include "trefoil/inspect.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

std::string count(int64_t value) {
  return format_count(static_cast<uint64_t>(value));
}

std::string headline(const InspectReport& report) {
  std::string text = fmt::format(
      "{}\n  {}: {} layers, hidden {}, {} routed experts of which {} per token, vocabulary {}, context {}\n",
      report.path, report.model_type, report.num_hidden_layers, report.hidden_size, report.num_experts,
      report.num_experts_per_token, count(report.vocab_size), count(report.max_position_embeddings));
  text += fmt::format("  {} tensors in {} shards, {} bytes ({})\n", count(report.num_tensors), report.num_shards,
                      format_count(report.total_bytes), format_gb(report.total_bytes));
  if (report.sizes_from_headers) return text + "  sizes: from the shards' headers\n";
  text += fmt::format("  sizes: computed from names and config.json, {} of {} shards are here; ", report.shards_present,
                      report.num_shards);
  if (report.declared_total_size == 0) return text + "the index gives no total_size to compare with\n";
  return text + (report.declared_total_size == report.total_bytes
                     ? "they add up to the index's total_size\n"
                     : fmt::format("the index's total_size is {}\n", format_count(report.declared_total_size)));
}

std::string component_table(const InspectReport& report) {
  TextTable table("lrrr");
  table.row({"component", "tensors", "parameters", "bytes"});
  table.rule();
  ComponentSize text_total, all;
  const auto add = [&](ComponentSize& sum, const ComponentSize& part) {
    sum.tensors += part.tensors;
    sum.parameters += part.parameters;
    sum.bytes += part.bytes;
  };
  const auto row = [&](const std::string& name, const ComponentSize& size) {
    table.row({name, count(size.tensors), size.parameters > 0 ? format_count(size.parameters) : "-",
               format_count(size.bytes)});
  };
  for (const ComponentSize& size : report.components) {
    if (!size.text && text_total.tensors > 0 && all.tensors == text_total.tensors) row("text total", text_total);
    row(size.component, size);
    if (size.text) add(text_total, size);
    add(all, size);
  }
  table.rule();
  row("all", all);
  return table.text();
}

// "0, 4-7" for a sorted list.
std::string ranges(const std::vector<int64_t>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += last == i ? fmt::format("{}", layers[i]) : fmt::format("{}-{}", layers[i], layers[last]);
    i = last + 1;
  }
  return text.empty() ? "none" : text;
}

std::vector<int64_t> layers_where(const InspectReport& report, bool (*condition)(const LayerSummary&)) {
  std::vector<int64_t> layers;
  for (const LayerSummary& layer : report.layers) {
    if (condition(layer)) layers.push_back(layer.layer);
  }
  return layers;
}

// One letter per layer, in groups of attn_res_block_size, wrapped between groups.
std::string letters(const InspectReport& report) {
  constexpr size_t kWidth = 96;
  std::string text, line, group;
  const auto end_group = [&] {
    if (!line.empty() && line.size() + 1 + group.size() > kWidth) {
      text += "  " + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + group;
    group.clear();
  };
  for (const LayerSummary& layer : report.layers) {
    if (layer.layer > 0 && layer.layer % report.attn_res_block_size == 0) end_group();
    group += layer.attention == "KDA" ? 'k' : 'M';
  }
  end_group();
  return text + "  " + line + "\n";
}

std::string layer_map(const InspectReport& report) {
  std::string text = "layers (from 0; k = KDA, M = MLA; a gap every attn_res_block_size layers)\n" + letters(report);
  const auto mla = layers_where(report, [](const LayerSummary& layer) { return layer.attention == "MLA"; });
  text += fmt::format("  MLA ({}): {}\n", mla.size(), ranges(mla));
  text += fmt::format("  dense MLP: {}; MoE: {}\n",
                      ranges(layers_where(report, [](const LayerSummary& layer) { return layer.ffn == "dense"; })),
                      ranges(layers_where(report, [](const LayerSummary& layer) { return layer.ffn == "MoE"; })));
  std::vector<int64_t> counts;
  for (const LayerSummary& layer : report.layers) {
    if (layer.experts > 0) counts.push_back(layer.experts);
  }
  if (counts.empty()) return text + "  routed experts: none\n";
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return text + (*least == *most ? fmt::format("  routed experts per MoE layer: {}\n", *least)
                                 : fmt::format("  routed experts per MoE layer: {} to {}\n", *least, *most));
}

std::string format_table(const InspectReport& report) {
  TextTable table("lrrrr");
  table.row({"Linears stored as", "Linears", "parameters", "bytes", "bits/weight"});
  table.rule();
  for (const FormatSummary& format : report.formats) {
    table.row({format.format, count(format.linears), format_count(format.parameters), format_count(format.bytes),
               fmt::format("{:.4g}", format.bits_per_weight)});
  }
  return table.text();
}

Json component_json(const ComponentSize& size) {
  return {{"component", size.component},
          {"text", size.text},
          {"tensors", size.tensors},
          {"parameters", size.parameters},
          {"bytes", size.bytes}};
}

Json layer_json(const LayerSummary& layer) {
  return {{"layer", layer.layer},     {"attention", layer.attention}, {"ffn", layer.ffn},
          {"tensors", layer.tensors}, {"experts", layer.experts},     {"bytes", layer.bytes}};
}

Json format_json(const FormatSummary& format) {
  return {{"format", format.format},
          {"linears", format.linears},
          {"parameters", format.parameters},
          {"bytes", format.bytes},
          {"bits_per_weight", format.bits_per_weight}};
}

template <typename Item>
Json list_json(const std::vector<Item>& items, Json (*one)(const Item&)) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(one(item));
  return list;
}

}  // namespace

std::string to_text(const InspectReport& report) {
  std::string text = headline(report) + "\n" + component_table(report) + "\n" + layer_map(report) + "\n";
  text += format_table(report) + "\n";
  text += fmt::format("weights read per decoded token, one sequence: {} ({} routed experts, {} everything else)\n\n",
                      format_gb(report.per_token.total()), format_gb(report.per_token.routed_bytes),
                      format_gb(report.per_token.resident_bytes));
  return text + finding_lines(report.findings);
}

std::string to_json(const InspectReport& report) {
  const Json json = {
      {"path", report.path},
      {"ok", report.ok()},
      {"model_type", report.model_type},
      {"num_hidden_layers", report.num_hidden_layers},
      {"hidden_size", report.hidden_size},
      {"vocab_size", report.vocab_size},
      {"num_experts", report.num_experts},
      {"num_experts_per_token", report.num_experts_per_token},
      {"attn_res_block_size", report.attn_res_block_size},
      {"max_position_embeddings", report.max_position_embeddings},
      {"tensors", report.num_tensors},
      {"shards", report.num_shards},
      {"shards_present", report.shards_present},
      {"sizes_from", report.sizes_from_headers ? "headers" : "names and config"},
      {"total_bytes", report.total_bytes},
      {"declared_total_size", report.declared_total_size == 0 ? Json(nullptr) : Json(report.declared_total_size)},
      {"expert_format", report.expert_format},
      {"routed_bits_per_weight", report.routed_bits_per_weight},
      {"bytes_per_token",
       {{"routed_experts", report.per_token.routed_bytes},
        {"everything_else", report.per_token.resident_bytes},
        {"total", report.per_token.total()}}},
      {"components", list_json(report.components, component_json)},
      {"formats", list_json(report.formats, format_json)},
      {"layers", list_json(report.layers, layer_json)},
      {"findings", findings_json(report.findings)},
  };
  return dump_json(json);
}

std::string to_text(const std::vector<TensorRow>& rows) {
  TextTable table("llrrll");
  table.row({"name", "dtype", "shape", "bytes", "component", "shard"});
  table.rule();
  uint64_t bytes = 0;
  for (const TensorRow& row : rows) {
    const bool known = !row.dtype.empty();
    table.row({row.name, known ? row.dtype : "?", known ? to_string(Shape(row.shape)) : "?",
               known ? format_count(row.bytes) : "?", row.component.empty() ? "?" : row.component, row.shard});
    bytes += row.bytes;
  }
  return table.text() + fmt::format("{} tensors, {} bytes\n", format_count(rows.size()), format_count(bytes));
}

std::string to_json(const std::vector<TensorRow>& rows) {
  Json list = Json::array();
  for (const TensorRow& row : rows) {
    list.push_back({{"name", row.name},
                    {"dtype", row.dtype.empty() ? Json(nullptr) : Json(row.dtype)},
                    {"shape", row.dtype.empty() ? Json(nullptr) : Json(row.shape)},
                    {"bytes", row.bytes},
                    {"component", row.component.empty() ? Json(nullptr) : Json(row.component)},
                    {"shard", row.shard}});
  }
  return dump_json(list);
}

}  // namespace trefoil
