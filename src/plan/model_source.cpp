#include "plan/model_source.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/text_stream.h"

namespace trefoil {
namespace {

constexpr uint64_t kMaxIndexBytes = 1ull << 31;

// Where the index is; nothing when the folder holds a single file or no model at all.
std::optional<fs::path> find_index(const ModelFiles& files) {
  if (!files.index.empty()) return files.index;
  for (const char* ending : {"", ".gz"}) {
    const fs::path path = files.folder / (std::string(kIndexFile) + ending);
    if (fs::exists(path)) return path;
  }
  if (!fs::exists(files.folder / kSingleShard)) {
    fail(ErrorCode::kNotFound, "{}: neither {} nor {} is there", files.folder.string(), kIndexFile, kSingleShard);
  }
  return std::nullopt;
}

CheckpointIndex read_index(const fs::path& path) {
  if (compression_of(path) == Compression::kNone) return load_index(path);
  return parse_index(read_text_stream(path, kMaxIndexBytes), path.string());
}

int64_t count_present(const fs::path& folder, const std::vector<std::string>& shards) {
  return std::count_if(shards.begin(), shards.end(),
                       [&](const std::string& shard) { return fs::exists(folder / shard); });
}

void read_tensors(const ModelFiles& files, ModelSource& source) {
  const std::optional<fs::path> index_path = find_index(files);
  const fs::path folder = index_path.has_value() ? index_path->parent_path() : files.folder;
  if (index_path.has_value()) {
    CheckpointIndex index = read_index(*index_path);
    source.shards = index.shards;
    source.declared_total_size = index.total_size;
    source.shards_present = count_present(folder, index.shards);
    const bool opens =
        source.shards_present == static_cast<int64_t>(index.shards.size()) && index_path->filename() == kIndexFile;
    if (!opens) {
      source.index = std::move(index);
      return;
    }
  }
  source.checkpoint = Checkpoint::open(folder);
  source.shards = source.checkpoint->shards();
  source.shards_present = static_cast<int64_t>(source.shards.size());
}

// --- how the routed experts are stored ---

std::string first_expert_module(const ModelSource& source) {
  int64_t layer = 0;
  while (layer + 1 < source.config.num_hidden_layers && !source.config.is_moe(layer)) ++layer;
  return fmt::format("{}model.layers.{}.block_sparse_moe.experts.0.w1", source.text_prefix, layer);
}

bool has_tensor(const ModelSource& source, const std::string& name) {
  return source.checkpoint.has_value() ? source.checkpoint->find(name) != nullptr : source.index->find(name) != nullptr;
}

// A first expert that contradicts itself is a finding; the others are then measured against the release's storage.
ExpertStorage storage_from_headers(ModelSource& source, const std::string& module) {
  try {
    const StoredLinear linear = resolve_linear(*source.checkpoint, module);
    return {linear.format, linear.num_bits, linear.group_size, linear.layout};
  } catch (const Error& error) {
    source.findings.push_back({Finding::Severity::kError, error.what()});
    return {};
  }
}

ExpertStorage storage_from_names(const ModelSource& source, const std::string& module, const QuantizationGroup* group) {
  if (has_tensor(source, module + ".weight")) return {LinearFormat::kPlain, 16, 0};
  if (!has_tensor(source, module + ".weight_shape")) return {LinearFormat::kMxfp4, 4, 32};
  if (group == nullptr) {
    fail(ErrorCode::kCorrupt, "{}: {} is packed integers, and no quantization_config says of how many bits",
         source.config_path, module);
  }
  const int bits = group->num_bits;
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    fail(ErrorCode::kUnsupported, "{}: quantization_config: num_bits {}, expected 2, 3, 4 or 8", source.config_path,
         bits);
  }
  const int64_t size = group->group_size;
  if (size < 1 || source.config.moe_intermediate_size % size != 0 ||
      source.config.routed_expert_hidden_size % size != 0) {
    fail(ErrorCode::kCorrupt, "{}: quantization_config: group_size {} does not divide the experts' widths {} and {}",
         source.config_path, size, source.config.routed_expert_hidden_size, source.config.moe_intermediate_size);
  }
  return {LinearFormat::kPackedInt, bits, size, layout_of_version(source.claim()->version)};
}

uint64_t computed_total(const ModelSource& source, const ExpertStorage& storage) {
  const TensorInventory inventory(source.config, source.vision, storage, source.text_prefix);
  uint64_t total = 0;
  for (const CheckpointIndex::Entry& entry : source.index->entries) {
    const auto identity = inventory.identify(entry.name);
    if (identity.has_value() && identity->expected != nullptr) total += identity->expected->bytes;
  }
  return total;
}

// With an index alone the version says which 3-bit layout it is; the index's total_size knows better.
void correct_layout_by_total(ModelSource& source) {
  ExpertStorage other = source.experts;
  if (other.format != LinearFormat::kPackedInt || other.num_bits != 3 || source.declared_total_size == 0) return;
  if (computed_total(source, source.experts) == source.declared_total_size) return;
  other.layout = other.layout == PackedLayout::kDense ? PackedLayout::kPadded : PackedLayout::kDense;
  if (computed_total(source, other) != source.declared_total_size) return;
  source.findings.push_back(
      {Finding::Severity::kWarning,
       fmt::format(
           "quantization_config.version \"{}\" stands for the {} layout of 3-bit rows, but total_size is that of "
           "the {} layout",
           source.claim()->version, to_string(source.experts.layout), to_string(other.layout))});
  source.experts = other;
}

// Where the first expert is missing, the release's storage is assumed; what is missing becomes a finding.
void find_expert_storage(ModelSource& source) {
  if (!source.config.is_moe(source.config.num_hidden_layers - 1)) return;
  const std::string module = first_expert_module(source);
  if (!has_tensor(source, module + ".weight_packed") && !has_tensor(source, module + ".weight")) return;
  if (source.checkpoint.has_value()) {
    source.experts = storage_from_headers(source, module);
    return;
  }
  const QuantizationConfig* claim = source.claim();
  source.experts = storage_from_names(source, module, claim == nullptr ? nullptr : claim->match(module));
  correct_layout_by_total(source);
}

void note_absent_shards(ModelSource& source) {
  const auto named = static_cast<int64_t>(source.shards.size());
  if (source.checkpoint.has_value() || source.shards_present == 0) return;
  if (source.shards_present < named) {
    source.findings.push_back(
        {Finding::Severity::kError, fmt::format("{} of {} shards are missing; sizes are computed from names and config",
                                                named - source.shards_present, named)});
  }
}

}  // namespace

size_t ModelSource::num_tensors() const {
  return checkpoint.has_value() ? checkpoint->tensors().size() : index->entries.size();
}

const QuantizationConfig* ModelSource::claim() const {
  if (quantization.top.has_value()) return &*quantization.top;
  return quantization.nested.has_value() ? &*quantization.nested : nullptr;
}

ModelSource read_model_source(const ModelFiles& files) {
  ModelSource source;
  const fs::path config = files.config.empty() ? files.folder / kConfigFile : files.config;
  if (!fs::exists(config)) fail(ErrorCode::kNotFound, "{} is not there", config.string());
  source.path = (files.folder.empty() ? config.parent_path() : files.folder).string();
  source.config_path = config.string();
  source.config_json = read_text_file(config, 256ull << 20);
  source.config = parse_model_config(source.config_json, source.config_path);
  source.vision = parse_vision_config(source.config_json, source.config_path);
  source.quantization = parse_quantization_configs(source.config_json, source.config_path);
  read_tensors(files, source);
  source.text_prefix =
      source.checkpoint.has_value() ? text_prefix_of(*source.checkpoint) : text_prefix_of(*source.index);
  find_expert_storage(source);
  note_absent_shards(source);
  return source;
}

void for_each_tensor(const ModelSource& source, const std::function<void(const SourceTensor&)>& visit) {
  if (source.checkpoint.has_value()) {
    for (const TensorRef& tensor : source.checkpoint->tensors()) visit({tensor.info.name, tensor.shard, &tensor.info});
  } else {
    for (const CheckpointIndex::Entry& entry : source.index->entries) visit({entry.name, entry.shard, nullptr});
  }
}

PackedLayout layout_of_version(const std::string& version) {
  int major = 0, minor = 0;
  const bool read = std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2;
  return read && major == 0 && minor < 18 ? PackedLayout::kPadded : PackedLayout::kDense;
}

std::string describe(const ExpertStorage& storage) {
  switch (storage.format) {
    case LinearFormat::kPlain:
      return "BF16";
    case LinearFormat::kMxfp4:
      return fmt::format("MXFP4, group {}", storage.group_size);
    case LinearFormat::kPackedInt:
      break;
  }
  const std::string layout = storage.num_bits == 3 ? fmt::format(" {}", to_string(storage.layout)) : "";
  return fmt::format("int{}{}, group {}", storage.num_bits, layout, storage.group_size);
}

}  // namespace trefoil
