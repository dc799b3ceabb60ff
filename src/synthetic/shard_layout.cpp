#include "synthetic/shard_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/tensor_inventory.h"
#include "checkpoint/tensor_order.h"

namespace trefoil {
namespace {

// Neighbours with the same expert stay in one shard; -1 is none.
struct PlacedTensor {
  TensorPlan plan;
  uint64_t bytes = 0;
  int64_t expert = -1;
};

// The tensors of one layer, or those outside the layers.
using LayerTensors = std::vector<PlacedTensor>;

std::vector<LayerTensors> tensors_by_layer(const ModelConfig& config, ShardLayout& layout) {
  const TensorInventory inventory(config, std::nullopt, ExpertStorage{}, "language_model.");
  std::vector<LayerTensors> layers(static_cast<size_t>(config.num_hidden_layers + 1));
  inventory.for_each_expected([&](const std::string& name, const TensorIdentity& identity) {
    const ExpectedTensor& expected = *identity.expected;
    const int64_t place = identity.layer < 0 ? config.num_hidden_layers : identity.layer;
    layers[static_cast<size_t>(place)].push_back(
        {{name, expected.dtype, expected.shape}, expected.bytes, identity.expert});
    ++layout.num_tensors;
    layout.total_size += expected.bytes;
    if (is_routed(identity.component)) layout.expert_bytes += expected.bytes;
  });
  for (LayerTensors& layer : layers) {
    std::sort(layer.begin(), layer.end(), [](const PlacedTensor& a, const PlacedTensor& b) {
      return precedes_in_package_order(a.plan.dtype, a.plan.name, b.plan.dtype, b.plan.name);
    });
  }
  return layers;
}

// Starts new shards where one would grow over its limit.
class ShardFiller {
 public:
  ShardFiller(std::vector<SyntheticShard>& shards, uint64_t shard_size) : shards_(shards), shard_size_(shard_size) {}

  void add_layer(LayerTensors layer) {
    if (shard_size_ == 0 || shards_.empty()) shards_.emplace_back();
    for (size_t begin = 0; begin < layer.size();) {
      size_t end = begin + 1;
      uint64_t bytes = layer[begin].bytes;
      for (; end < layer.size() && layer[begin].expert >= 0 && layer[end].expert == layer[begin].expert; ++end) {
        bytes += layer[end].bytes;
      }
      if (shard_size_ > 0 && shards_.back().bytes > 0 && shards_.back().bytes + bytes > shard_size_) {
        shards_.emplace_back();
      }
      for (; begin < end; ++begin) shards_.back().tensors.push_back(std::move(layer[begin].plan));
      shards_.back().bytes += bytes;
    }
  }

 private:
  std::vector<SyntheticShard>& shards_;
  uint64_t shard_size_;
};

}  // namespace

ShardLayout lay_out(const ModelConfig& config, uint64_t shard_size) {
  ShardLayout layout;
  ShardFiller filler(layout.shards, shard_size);
  for (LayerTensors& layer : tensors_by_layer(config, layout)) filler.add_layer(std::move(layer));
  for (size_t i = 0; i < layout.shards.size(); ++i) {
    layout.shards[i].file = fmt::format("model-{:05}-of-{:06}.safetensors", i + 1, layout.shards.size());
  }
  return layout;
}

CheckpointIndex index_of(const ShardLayout& layout) {
  CheckpointIndex index;
  index.total_size = layout.total_size;
  for (const SyntheticShard& shard : layout.shards) {
    const auto place = static_cast<uint32_t>(index.shards.size());
    index.shards.push_back(shard.file);
    for (const TensorPlan& tensor : shard.tensors) index.entries.push_back({tensor.name, place});
  }
  std::sort(index.entries.begin(), index.entries.end(),
            [](const CheckpointIndex::Entry& a, const CheckpointIndex::Entry& b) { return a.name < b.name; });
  return index;
}

}  // namespace trefoil
