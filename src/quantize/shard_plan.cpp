#include "quantize/shard_plan.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/tensor_order.h"

namespace trefoil {
namespace {

// What a source tensor turns into.
struct Replacement {
  TensorPlan plan;
  int64_t layer = 0;
};

struct LinearReplacement {
  Replacement packed, scale, shape;
};

LinearReplacement replacement_of(const StoredLinear& linear, int64_t layer, const ExpertEncoding& encoding) {
  if (linear.in_features % encoding.group_size != 0) {
    fail(ErrorCode::kInvalidArgument, "group size {} does not divide the {} input columns of {}", encoding.group_size,
         linear.in_features, linear.module);
  }
  const int64_t words = packed_words(encoding.num_bits, linear.in_features, encoding.layout);
  const int64_t groups = linear.in_features / encoding.group_size;
  return {{{linear.module + ".weight_packed", DType::kI32, {linear.out_features, words}}, layer},
          {{linear.module + ".weight_scale", DType::kBF16, {linear.out_features, groups}}, layer},
          {{linear.module + ".weight_shape", DType::kI64, {2}}, layer}};
}

// By the name of the source's tensor.
struct Replacements {
  std::unordered_map<std::string, Replacement> tensor;
  std::unordered_map<std::string, Replacement> shape;  // weight_shape beside a packed tensor
};

Replacements find_replacements(const std::vector<MoeLayer>& layers, const ExpertEncoding& encoding) {
  Replacements found;
  for (const MoeLayer& layer : layers) {
    for (const RoutedExpert& expert : layer.experts) {
      for (const StoredLinear& linear : expert.linear) {
        LinearReplacement made = replacement_of(linear, layer.layer, encoding);
        found.tensor.emplace(linear.packed->info.name, std::move(made.packed));
        found.tensor.emplace(linear.scale->info.name, std::move(made.scale));
        found.shape.emplace(linear.packed->info.name, std::move(made.shape));
      }
    }
  }
  return found;
}

void append(std::vector<TensorPlan>& to, std::vector<TensorPlan>&& from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

ShardPlan plan_shard(const Checkpoint& source, uint32_t shard, const Replacements& replacements, PackedLayout layout) {
  std::vector<TensorPlan> tensors, shapes, copied;
  std::set<int64_t> layers;
  for (const TensorInfo& tensor : source.header(shard).tensors) {
    const auto found = replacements.tensor.find(tensor.name);
    if (found == replacements.tensor.end()) {
      copied.push_back({tensor.name, tensor.dtype, tensor.shape});
      continue;
    }
    layers.insert(found->second.layer);
    tensors.push_back(found->second.plan);
    const auto shape = replacements.shape.find(tensor.name);
    if (shape != replacements.shape.end()) shapes.push_back(shape->second.plan);
  }
  make_experts_contiguous(tensors);
  append(tensors, std::move(shapes));
  std::unordered_set<std::string> made;
  for (const TensorPlan& tensor : tensors) made.insert(tensor.name);
  append(tensors, std::move(copied));
  if (layout == PackedLayout::kPadded) sort_into_package_order(tensors);

  ShardPlan plan{source.shards()[shard], {}, {layers.begin(), layers.end()}};
  for (TensorPlan& tensor : tensors) {
    const TensorRef* from = made.contains(tensor.name) ? nullptr : &source.at(tensor.name);
    plan.tensors.push_back({std::move(tensor), from});
  }
  return plan;
}

}  // namespace

uint64_t ShardPlan::tensor_bytes() const {
  uint64_t total = 0;
  for (const ShardTensor& tensor : tensors) {
    uint64_t bytes = 0;
    TREFOIL_CHECK(byte_size_of(tensor.plan.shape, tensor.plan.dtype, &bytes));
    total += bytes;
  }
  return total;
}

uint64_t data_alignment(PackedLayout layout) {
  return layout == PackedLayout::kDense ? 4096 : 8;
}

std::vector<ShardPlan> plan_shards(const Checkpoint& source, const std::vector<MoeLayer>& layers,
                                   const ExpertEncoding& encoding) {
  const Replacements replacements = find_replacements(layers, encoding);
  std::vector<ShardPlan> plans;
  for (uint32_t shard = 0; shard < source.shards().size(); ++shard)
    plans.push_back(plan_shard(source, shard, replacements, encoding.layout));
  return plans;
}

CheckpointIndex index_of(const std::vector<ShardPlan>& plans) {
  CheckpointIndex index;
  for (const ShardPlan& plan : plans) {
    const auto shard = static_cast<uint32_t>(index.shards.size());
    index.shards.push_back(plan.file);
    for (const ShardTensor& tensor : plan.tensors) index.entries.push_back({tensor.plan.name, shard});
    index.total_size += plan.tensor_bytes();
  }
  std::sort(index.entries.begin(), index.entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return index;
}

}  // namespace trefoil
