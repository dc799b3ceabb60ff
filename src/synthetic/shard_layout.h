// Which tensor goes into which shard, and in which order. As the release: a shard a layer, then one for embedding, head
// and final norms; in a shard the safetensors package's order (dtype, widest first, then name), which puts a layer's
// trunk first and makes every expert one contiguous run, experts by the alphabet: 0, 1, 10, 100, ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"

namespace trefoil {

struct SyntheticShard {
  std::string file;                 // "model-00001-of-000096.safetensors": five digits, six digits
  std::vector<TensorPlan> tensors;  // in file order
  uint64_t bytes = 0;               // of tensors
};

struct ShardLayout {
  std::vector<SyntheticShard> shards;
  int64_t num_tensors = 0;
  uint64_t total_size = 0;    // bytes of all tensors
  uint64_t expert_bytes = 0;  // of them, the routed experts
};

// The tensors of the text model; vision tower and projector are not made. `shard_size` as in SynthesizeOptions.
// Error(kInvalidArgument) when an expert's width is no multiple of 32.
ShardLayout lay_out(const ModelConfig& config, uint64_t shard_size);

CheckpointIndex index_of(const ShardLayout& layout);

}  // namespace trefoil
