// The files that describe a checkpoint, read: config, claims about quantization, and the tensors as far as they are
// known. With all shards in place dtypes and shapes come from their headers; with an index alone, from the inventory's
// table.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/tensor_inventory.h"
#include "trefoil/inspect.h"

namespace trefoil {

struct ModelSource {
  std::string path;         // for messages
  std::string config_path;  // for messages
  std::string config_json;
  ModelConfig config;
  std::optional<VisionConfig> vision;
  QuantizationConfigs quantization;

  // Exactly one of these two.
  std::optional<Checkpoint> checkpoint;
  std::optional<CheckpointIndex> index;
  std::vector<std::string> shards;  // file names
  int64_t shards_present = 0;
  uint64_t declared_total_size = 0;  // 0 when the index does not say

  std::string text_prefix;
  ExpertStorage experts;  // of the first routed expert; with an index alone, as names and quantization_config tell

  // What reading noticed: shards that are not there, a layout that only the sizes tell.
  std::vector<Finding> findings;

  size_t num_tensors() const;
  TensorInventory inventory() const { return TensorInventory(config, vision, experts, text_prefix); }
  // The claim about a routed expert: the one at the top level, else the nested one. Null when there is none.
  const QuantizationConfig* claim() const;
};

// Errors as inspect() lists them.
ModelSource read_model_source(const ModelFiles& files);

// One tensor of a source. `info` is null when only the index is known.
struct SourceTensor {
  std::string_view name;
  uint32_t shard = 0;  // into ModelSource::shards
  const TensorInfo* info = nullptr;
};
void for_each_tensor(const ModelSource& source, const std::function<void(const SourceTensor&)>& visit);

// The layout a writer of this compressed-tensors version gives 3-bit rows: padded up to 0.17, dense from 0.18 on.
PackedLayout layout_of_version(const std::string& version);

// "MXFP4, group 32", "int3 dense, group 64", "BF16".
std::string describe(const ExpertStorage& storage);

}  // namespace trefoil
