#include "quantize/shard_plan.h"

#include <algorithm>
#include <set>
#include <unordered_map>

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

void sort_as_safetensors_package(std::vector<ShardTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const ShardTensor& a, const ShardTensor& b) {
    return precedes_in_package_order(a.plan.dtype, a.plan.name, b.plan.dtype, b.plan.name);
  });
}

// Groups the made tensors of a shard by expert, experts in the order of their first tensor: the release stores an
// expert's tensors together, and a source that does not is put right here.
void make_experts_contiguous(std::vector<ShardTensor>& made) {
  std::unordered_map<std::string, size_t> rank;
  auto expert_of = [](const std::string& name) {
    // "...experts.17.w1.weight_packed" -> "...experts.17"
    return name.substr(0, name.rfind('.', name.rfind('.') - 1));
  };
  for (const ShardTensor& tensor : made) rank.emplace(expert_of(tensor.plan.name), rank.size());
  std::stable_sort(made.begin(), made.end(), [&](const ShardTensor& a, const ShardTensor& b) {
    return rank.at(expert_of(a.plan.name)) < rank.at(expert_of(b.plan.name));
  });
}

template <typename T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
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
  std::unordered_map<std::string, Replacement> replaced;  // source tensor name -> what takes its place
  std::unordered_map<std::string, Replacement> shapes;    // name of the source's packed tensor -> weight_shape
  for (const MoeLayer& layer : layers) {
    for (const RoutedExpert& expert : layer.experts) {
      for (const StoredLinear& linear : expert.linear) {
        LinearReplacement made = replacement_of(linear, layer.layer, encoding);
        replaced.emplace(linear.packed->info.name, std::move(made.packed));
        replaced.emplace(linear.scale->info.name, std::move(made.scale));
        shapes.emplace(linear.packed->info.name, std::move(made.shape));
      }
    }
  }

  std::vector<ShardPlan> plans;
  for (size_t shard = 0; shard < source.shards().size(); ++shard) {
    ShardPlan plan{source.shards()[shard], {}, {}};
    std::vector<ShardTensor> made, made_shapes, copied;
    std::set<int64_t> layers_here;
    for (const TensorInfo& tensor : source.header(static_cast<uint32_t>(shard)).tensors) {
      const auto found = replaced.find(tensor.name);
      if (found == replaced.end()) {
        copied.push_back({{tensor.name, tensor.dtype, tensor.shape}, &source.at(tensor.name)});
        continue;
      }
      layers_here.insert(found->second.layer);
      made.push_back({found->second.plan, nullptr});
      const auto shape = shapes.find(tensor.name);
      if (shape != shapes.end()) made_shapes.push_back({shape->second.plan, nullptr});
    }
    make_experts_contiguous(made);
    append(plan.tensors, std::move(made));
    append(plan.tensors, std::move(made_shapes));
    append(plan.tensors, std::move(copied));
    if (encoding.layout == PackedLayout::kPadded) sort_as_safetensors_package(plan.tensors);
    plan.layers.assign(layers_here.begin(), layers_here.end());
    plans.push_back(std::move(plan));
  }
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
