#include "stream/expert_layout.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/tensor_inventory.h"
#include "stream/direct_alignment.h"

namespace trefoil {
namespace {

// Bytes between two tensors of an expert that are read in vain rather than with a read more: a drive of 3 GB/s passes
// over them in the 20 us that a request costs.
constexpr uint64_t kReadThrough = uint64_t{64} << 10;

constexpr const char* kMatrixNames[] = {"w1", "w2", "w3"};

bool same_tensors(const SafetensorsHeader& a, const SafetensorsHeader& b, std::string* which) {
  const auto same = [](const TensorInfo& x, const TensorInfo& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.begin == y.begin && x.end == y.end;
  };
  const auto [x, y] = std::mismatch(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(), same);
  if (x == a.tensors.end() && y == b.tensors.end()) return true;
  *which = x != a.tensors.end() ? x->name : y->name;
  return false;
}

void require_copy(const Checkpoint& first, const Checkpoint& other) {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorCode::kCorrupt, "{} is no copy of {}: {}", other.folder().string(), first.folder().string(), what);
  };
  if (first.shards() != other.shards()) {
    refuse(fmt::format("{} shards against {}, or other names", other.shards().size(), first.shards().size()));
  }
  for (uint32_t shard = 0; shard < first.shards().size(); ++shard) {
    const std::string& name = first.shards()[shard];
    const SafetensorsHeader& a = first.header(shard);
    const SafetensorsHeader& b = other.header(shard);
    if (a.data_start != b.data_start)
      refuse(fmt::format("the data of {} begin at byte {} against {}", name, b.data_start, a.data_start));
    std::string tensor;
    if (!same_tensors(a, b, &tensor)) refuse(fmt::format("{}: {} differs", name, tensor));
  }
}

FileExtent extent_of(const Checkpoint& checkpoint, const TensorRef& tensor) {
  return {.shard = tensor.shard,
          .offset = checkpoint.header(tensor.shard).data_start + tensor.info.begin,
          .size = tensor.info.size()};
}

}  // namespace

ExpertLayout::ExpertLayout(std::vector<std::shared_ptr<const Checkpoint>> copies, const ModelConfig& config)
    : copies_(std::move(copies)), first_layer_(config.first_k_dense_replace), num_experts_(config.num_experts) {
  TREFOIL_CHECK(!copies_.empty());
  for (size_t i = 1; i < copies_.size(); ++i) require_copy(*copies_[0], *copies_[i]);
  const std::string prefix = text_prefix_of(*copies_[0]);
  for (int64_t layer = first_layer_; layer < config.num_hidden_layers; ++layer) {
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      places_.push_back(locate(fmt::format("{}model.layers.{}.block_sparse_moe.experts.{}", prefix, layer, expert)));
    }
  }
  summarize();
}

ExpertPlace ExpertLayout::locate(const std::string& module) const {
  const Checkpoint& checkpoint = *copies_[0];
  ExpertPlace place;
  std::vector<FileExtent> tensors;
  for (size_t i = 0; i < 3; ++i) {
    StoredLinear& linear = place.linear[i];
    linear = resolve_linear(checkpoint, module + "." + kMatrixNames[i]);
    for (const TensorRef* tensor : {linear.weight, linear.packed, linear.scale}) {
      if (tensor != nullptr) tensors.push_back(extent_of(checkpoint, *tensor));
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const FileExtent& a, const FileExtent& b) {
    return std::pair(a.shard, a.offset) < std::pair(b.shard, b.offset);
  });
  for (const FileExtent& tensor : tensors) {
    place.tensor_bytes += tensor.size;
    if (!place.extents.empty()) {
      FileExtent& last = place.extents.back();
      if (last.shard == tensor.shard && tensor.offset - (last.offset + last.size) <= kReadThrough) {
        last.size = tensor.offset + tensor.size - last.offset;
        continue;
      }
    }
    place.extents.push_back(tensor);
  }
  for (FileExtent& extent : place.extents) {
    extent.slot_offset = place.slot_bytes;
    place.slot_bytes += align_up(extent.offset % kDirectAlignment + extent.size);
  }
  return place;
}

void ExpertLayout::summarize() {
  ExpertLayoutSummary& all = summary_;
  all.num_experts = num_keys();
  for (const ExpertPlace& place : places_) {
    all.tensor_bytes = std::max(all.tensor_bytes, place.tensor_bytes);
    all.slot_bytes = std::max(all.slot_bytes, place.slot_bytes);
    all.all_tensor_bytes += place.tensor_bytes;
    all.most_reads = std::max(all.most_reads, static_cast<int64_t>(place.extents.size()));
    all.is_aligned = all.is_aligned && place.slot_bytes == place.tensor_bytes;
  }
  all.text = fmt::format(
      "{} {} {} of {} bytes an expert", all.most_reads == 1 ? "one" : fmt::format("up to {}", all.most_reads),
      all.is_aligned ? "aligned" : "unaligned", all.most_reads == 1 ? "read" : "reads", format_count(all.tensor_bytes));
  if (!all.is_aligned) all.text += fmt::format(", {} with the pages around them", format_count(all.slot_bytes));
}

int64_t ExpertLayout::key(int64_t layer, int64_t expert) const {
  const int64_t key = (layer - first_layer_) * num_experts_ + expert;
  TREFOIL_CHECK(layer >= first_layer_ && expert >= 0 && expert < num_experts_ && key < num_keys());
  return key;
}

std::string ExpertLayout::name(int64_t key) const {
  return fmt::format("layer {} expert {}", layer_of(key), expert_of(key));
}

std::vector<std::filesystem::path> ExpertLayout::files() const {
  std::vector<std::filesystem::path> files;
  for (const auto& copy : copies_) {
    for (const std::string& shard : copy->shards()) files.push_back(copy->folder() / shard);
  }
  return files;
}

uint32_t ExpertLayout::file(int64_t key, const FileExtent& extent) const {
  const size_t copy = static_cast<size_t>(key) % copies_.size();
  return static_cast<uint32_t>(copy * copies_[0]->shards().size()) + extent.shard;
}

Bytes ExpertLayout::find(const ExpertPlace& place, const TensorRef* tensor, Bytes slot) const {
  if (tensor == nullptr) return {};
  const FileExtent wanted = extent_of(*copies_[0], *tensor);
  for (const FileExtent& extent : place.extents) {
    if (extent.shard != wanted.shard || wanted.offset < extent.offset ||
        wanted.offset + wanted.size > extent.offset + extent.size) {
      continue;
    }
    const uint64_t first = extent.slot_offset + extent.offset % kDirectAlignment;
    return slot.subspan(first + (wanted.offset - extent.offset), wanted.size);
  }
  TREFOIL_CHECK(!"a tensor of the expert lies in one of its extents");
  return {};
}

StoredMatrix ExpertLayout::matrix(int64_t key, ExpertMatrix which, Bytes slot) const {
  const ExpertPlace& at = place(key);
  const StoredLinear& linear = at.linear[static_cast<size_t>(which)];
  return {.linear = &linear,
          .first_row = 0,
          .weight = find(at, linear.weight, slot),
          .packed = find(at, linear.packed, slot),
          .scale = find(at, linear.scale, slot)};
}

}  // namespace trefoil
