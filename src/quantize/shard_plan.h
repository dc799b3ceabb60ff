// What every shard of the output holds and in which order, known before any work: sizes follow from shapes.
//
//   kDense   the routed experts first, each contiguous and in the source's order (checkpoint/tensor_order.h for a
//            source that scatters them), then their weight_shape tensors, then everything else in the source's order;
//            data start at a multiple of 4096. At Kimi-K3's sizes an expert is then one page-aligned read of
//            13,418,496 bytes. docs/formats.md, "Output".
//   kPadded  the order in which the safetensors package serializes (by dtype, then name), as compressed-tensors 0.17.1
//            leaves a shard
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "quantize/source_experts.h"
#include "tensor/packed_int.h"

namespace trefoil {

// How the experts are stored in the output.
struct ExpertEncoding {
  int num_bits = 3;
  int64_t group_size = 64;
  PackedLayout layout = PackedLayout::kDense;
};

struct ShardTensor {
  TensorPlan plan;
  const TensorRef* copied = nullptr;  // source of a copied tensor; null for a tensor the job makes
};

struct ShardPlan {
  std::string file;
  std::vector<ShardTensor> tensors;  // in file order
  std::vector<int64_t> layers;       // MoE layers of which this shard holds tensors the job makes, ascending

  uint64_t tensor_bytes() const;
};

// One plan per source shard, same names. `layers` are those to quantize; experts of other layers are copied as they
// are. Error(kInvalidArgument) when group_size does not divide an input width.
std::vector<ShardPlan> plan_shards(const Checkpoint& source, const std::vector<MoeLayer>& layers,
                                   const ExpertEncoding& encoding);

// The alignment of the data in a shard, and the index that names every planned tensor.
uint64_t data_alignment(PackedLayout layout);
CheckpointIndex index_of(const std::vector<ShardPlan>& plans);

}  // namespace trefoil
