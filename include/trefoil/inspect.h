// What a checkpoint is: components and their bytes, the layer map, how Linears are stored, and what contradicts what.
// Reads config.json, the index and the shards' headers, never tensor data; without any shard, sizes follow from the
// names and the config. docs/cli.md, "inspect".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trefoil/error.h"
#include "trefoil/model_files.h"

namespace trefoil {

struct Finding {
  enum class Severity {
    kNote,     // worth knowing
    kWarning,  // a claim that the tensors contradict; the tensors decide
    kError,    // the checkpoint is incomplete or inconsistent
  };
  Severity severity = Severity::kNote;
  std::string message;  // one sentence with numbers and an example
};
const char* to_string(Finding::Severity severity);

struct ComponentSize {
  std::string component;  // "routed experts, packed"
  bool text = true;       // part of the text model
  int64_t tensors = 0;
  uint64_t parameters = 0;  // 0 for scales and shapes
  uint64_t bytes = 0;
};

struct LayerSummary {
  int64_t layer = 0;      // 0-based, as in tensor names
  std::string attention;  // "KDA" or "MLA", by the config
  std::string ffn;        // "dense" or "MoE", by the config
  int64_t tensors = 0;    // found
  int64_t experts = 0;    // routed experts of which any tensor was found
  uint64_t bytes = 0;
};

// Linears that are stored alike.
struct FormatSummary {
  std::string format;  // "MXFP4, group 32", "int3 dense, group 64", "BF16"
  int64_t linears = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
  double bits_per_weight = 0;
};

// Weight bytes that one decoded token touches at batch size 1.
struct TokenTraffic {
  uint64_t routed_bytes = 0;    // its experts in every MoE layer
  uint64_t resident_bytes = 0;  // the rest of the text model, of the embedding table one row
  uint64_t total() const { return routed_bytes + resident_bytes; }
};

struct InspectReport {
  std::string path;        // what was inspected
  std::string model_type;  // the text model's
  int64_t num_hidden_layers = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t num_experts = 0;
  int64_t num_experts_per_token = 0;
  int64_t attn_res_block_size = 0;
  int64_t max_position_embeddings = 0;

  int64_t num_tensors = 0;
  int64_t num_shards = 0;
  int64_t shards_present = 0;
  bool sizes_from_headers = false;   // else computed from names and config
  uint64_t total_bytes = 0;          // of all tensors, headers excluded
  uint64_t declared_total_size = 0;  // metadata.total_size of the index; 0 when absent

  std::vector<ComponentSize> components;  // only those that have tensors
  std::vector<LayerSummary> layers;
  std::vector<FormatSummary> formats;
  std::string expert_format;          // of the routed experts, as in formats
  double routed_bits_per_weight = 0;  // scales included
  TokenTraffic per_token;
  std::vector<Finding> findings;  // errors first

  bool ok() const;  // no finding is an error
};

// Errors: kNotFound (no config, no index and no model.safetensors), kCorrupt and kUnsupported as reading these files
// reports them. Tensors that do not fit the config are findings, not errors.
InspectReport inspect(const ModelFiles& files);

std::string to_text(const InspectReport& report);  // tables for a terminal, 100 columns
std::string to_json(const InspectReport& report);  // indented, ends with a newline

struct TensorRow {
  std::string name;
  std::string component;  // empty when the name belongs to no family
  std::string dtype;      // as safetensors spells it; empty when unknown
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  std::string shard;
};

// Tensors whose name contains a match of `pattern` (a regular expression; empty: all), sorted by name.
// Error(kUnsupported) for a pattern that does not compile.
std::vector<TensorRow> list_tensors(const ModelFiles& files, const std::string& pattern);
std::string to_text(const std::vector<TensorRow>& rows);
std::string to_json(const std::vector<TensorRow>& rows);

}  // namespace trefoil
