#include "support/packed_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/linear_storage.h"
#include "tensor/bf16.h"

namespace trefoil::testing {
namespace {

constexpr std::string_view kPacked = ".weight_packed";
constexpr std::string_view kScale = ".weight_scale";

struct PackedLinear {
  Shape shape;
  std::vector<uint32_t> words;
  std::vector<uint16_t> scale;
};

// The scale that puts the group's largest magnitude on the code of the same sign and largest magnitude.
uint16_t group_scale(std::span<const float> group, int num_bits) {
  const float limit = static_cast<float>(1 << (num_bits - 1));
  float amax = 0;
  for (const float w : group) amax = std::max(amax, std::abs(w));
  const uint16_t scale = f32_to_bf16(2 * amax / (2 * limit - 1));
  return bf16_to_f32(scale) == 0 ? f32_to_bf16(0x1p-7f) : scale;
}

PackedLinear round_to_nearest(const Checkpoint& source, const StoredLinear& linear, const PackQuantizedSpec& spec) {
  const int64_t cols = linear.in_features;
  const int64_t groups = cols / spec.group_size;
  const int64_t words = packed_words(spec.num_bits, cols, spec.layout);
  const int limit = 1 << (spec.num_bits - 1);
  PackedLinear result{{linear.out_features, cols}, {}, {}};
  result.words.resize(static_cast<size_t>(linear.out_features * words));
  std::vector<float> row(static_cast<size_t>(cols));
  std::vector<int8_t> codes(static_cast<size_t>(cols));
  for (int64_t r = 0; r < linear.out_features; ++r) {
    decode_linear(source, linear, r, r + 1, row);
    for (int64_t g = 0; g < groups; ++g) {
      const auto begin = static_cast<size_t>(g * spec.group_size);
      const auto size = static_cast<size_t>(spec.group_size);
      result.scale.push_back(group_scale(std::span(row).subspan(begin, size), spec.num_bits));
      const float scale = bf16_to_f32(result.scale.back());
      for (size_t k = begin; k < begin + size; ++k) {
        const long q = std::lrint(row[k] / scale);
        codes[k] = static_cast<int8_t>(std::clamp<long>(q, -limit, limit - 1));
      }
    }
    pack_row(spec.num_bits, spec.layout, codes,
             std::span(result.words).subspan(static_cast<size_t>(r * words), static_cast<size_t>(words)));
  }
  return result;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::string module_of(const std::string& name, std::string_view suffix) {
  return name.substr(0, name.size() - suffix.size());
}

void write_shard(const Checkpoint& source, uint32_t shard, const fs::path& folder, const PackQuantizedSpec& spec,
                 CheckpointIndex& index) {
  std::vector<TensorPlan> plan;
  std::vector<TensorPlan> shapes;
  std::map<std::string, PackedLinear> packed;
  for (const TensorInfo& tensor : source.header(shard).tensors) {
    if (tensor.name.ends_with(kPacked)) {
      const std::string module = module_of(tensor.name, kPacked);
      const auto& linear =
          packed.emplace(module, round_to_nearest(source, resolve_linear(source, module), spec)).first->second;
      plan.push_back(
          {tensor.name, DType::kI32, {linear.shape[0], packed_words(spec.num_bits, linear.shape[1], spec.layout)}});
      plan.push_back(
          {module + std::string(kScale), DType::kBF16, {linear.shape[0], linear.shape[1] / spec.group_size}});
      shapes.push_back({module + ".weight_shape", DType::kI64, {2}});
    } else if (!tensor.name.ends_with(kScale)) {
      plan.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
  }
  plan.insert(plan.end(), shapes.begin(), shapes.end());
  SafetensorsWriter writer(folder / source.shards()[shard], plan, spec.layout == PackedLayout::kDense ? 4096 : 8);
  for (const TensorPlan& tensor : plan) {
    const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    const auto linear = packed.find(module);
    if (linear == packed.end()) {
      writer.write(tensor.name, source.view(source.at(tensor.name)).data);
    } else if (tensor.name.ends_with(kPacked)) {
      writer.write(tensor.name, bytes_of(linear->second.words));
    } else if (tensor.name.ends_with(kScale)) {
      writer.write(tensor.name, bytes_of(linear->second.scale));
    } else {
      writer.write(tensor.name, bytes_of(linear->second.shape));
    }
    index.entries.push_back({tensor.name, shard});
    uint64_t size = 0;
    byte_size_of(tensor.shape, tensor.dtype, &size);
    index.total_size += size;
  }
  writer.commit();
}

}  // namespace

void write_rtn_checkpoint(const fs::path& source_folder, const fs::path& folder, const PackQuantizedSpec& spec) {
  const Checkpoint source = Checkpoint::open(source_folder);
  fs::create_directories(folder);
  CheckpointIndex index;
  index.shards = source.shards();
  for (uint32_t shard = 0; shard < source.shards().size(); ++shard) write_shard(source, shard, folder, spec, index);
  std::sort(index.entries.begin(), index.entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  write_text_file(folder / "model.safetensors.index.json", write_index(index));
  for (const std::string& file : side_files_of(source_folder)) {
    if (file != "config.json") copy_file_atomic(source_folder / file, folder / file);
  }
  const std::string config = read_text_file(source_folder / "config.json");
  write_text_file(folder / "config.json", write_quantized_config(config, spec, "config.json"));
  write_sums(folder);
}

void write_sums(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.is_regular_file() && name != "SHA256SUMS") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += sha256_of_file(folder / name) + "  " + name + "\n";
  write_text_file(folder / "SHA256SUMS", text);
}

}  // namespace trefoil::testing
