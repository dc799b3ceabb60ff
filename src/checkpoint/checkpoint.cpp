#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/folder_files.h"

namespace trefoil {
namespace {

// False also when the system will not say: opening the file then fails with the reason.
bool is_absent(const fs::path& path) {
  std::error_code error;
  return !fs::exists(path, error) && !error;
}

// One shard: its header, and the one of the two ways to its bytes that was asked for.
struct Shard {
  SafetensorsHeader header;
  std::unique_ptr<InputFile> file;
  std::unique_ptr<MappedFile> mapping;
};

Shard open_shard(const fs::path& path, Checkpoint::Access access) {
  Shard shard;
  shard.file = std::make_unique<InputFile>(path);
  shard.header = read_safetensors_header(*shard.file);
  if (access == Checkpoint::Access::kRead) return shard;
  shard.mapping = std::make_unique<MappedFile>(path);
  if (shard.mapping->bytes().size() != shard.file->size()) {
    fail(ErrorCode::kIo, "{}: the file changed while it was opened", path.string());
  }
  shard.file.reset();
  return shard;
}

// The index, or nothing for a checkpoint that is one model.safetensors.
std::optional<CheckpointIndex> find_index(const fs::path& folder) {
  const bool has_index = !is_absent(folder / kIndexFile);
  const bool has_single = !is_absent(folder / kSingleShard);
  if (!has_index && !has_single) {
    fail(ErrorCode::kNotFound, "{}: neither {} nor {} is here", folder.string(), kIndexFile, kSingleShard);
  }
  if (!has_index) return std::nullopt;
  CheckpointIndex index = load_index(folder / kIndexFile);
  // Loaders disagree on which of the two counts, so both at once are refused.
  if (has_single && !std::binary_search(index.shards.begin(), index.shards.end(), kSingleShard)) {
    fail(ErrorCode::kCorrupt, "{}: {} is here but {} does not name it", folder.string(), kSingleShard, kIndexFile);
  }
  return index;
}

bool name_less(const TensorRef& a, const TensorRef& b) {
  return a.info.name < b.info.name;
}

}  // namespace

struct Checkpoint::State {
  fs::path folder;
  std::vector<std::string> names;  // of the shards, sorted
  std::vector<Shard> shards;
  std::vector<TensorRef> tensors;
  uint64_t total_bytes = 0;

  void open_shards(Access access);
  void collect_tensors();
  void check_against(const CheckpointIndex& index) const;
  // Where the tensor's bytes begin in its shard's file.
  uint64_t file_offset(const TensorRef& tensor) const {
    return shards[tensor.shard].header.data_start + tensor.info.begin;
  }
};

void Checkpoint::State::open_shards(Access access) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (is_absent(folder / names[i])) {
      fail(ErrorCode::kNotFound, "{}: shard {} of {} is missing: {}", folder.string(), i + 1, names.size(), names[i]);
    }
    shards.push_back(open_shard(folder / names[i], access));
  }
}

void Checkpoint::State::collect_tensors() {
  for (uint32_t shard = 0; shard < shards.size(); ++shard) {
    for (const TensorInfo& info : shards[shard].header.tensors) {
      tensors.push_back({info, shard});
      total_bytes += info.size();
    }
  }
  std::sort(tensors.begin(), tensors.end(), name_less);
  const auto twice = std::adjacent_find(tensors.begin(), tensors.end(), [](const TensorRef& a, const TensorRef& b) {
    return a.info.name == b.info.name;
  });
  if (twice != tensors.end()) {
    fail(ErrorCode::kCorrupt, "{}: tensor {} is in two shards, {} and {}", folder.string(), twice->info.name,
         names[twice->shard], names[std::next(twice)->shard]);
  }
}

// Both lists are sorted by name: walk them together.
void Checkpoint::State::check_against(const CheckpointIndex& index) const {
  const std::string where = (folder / kIndexFile).string();
  size_t t = 0;
  for (const CheckpointIndex::Entry& entry : index.entries) {
    if (t < tensors.size() && tensors[t].info.name < entry.name) break;
    if (t == tensors.size() || tensors[t].info.name != entry.name) {
      fail(ErrorCode::kCorrupt, "{}: {} is not in {} as the index says", where, entry.name, names[entry.shard]);
    }
    if (tensors[t].shard != entry.shard) {
      fail(ErrorCode::kCorrupt, "{}: {} is in {}, the index says {}", where, entry.name, names[tensors[t].shard],
           names[entry.shard]);
    }
    ++t;
  }
  if (t < tensors.size()) {
    fail(ErrorCode::kCorrupt, "{}: {} of {} is not in the index", where, tensors[t].info.name, names[tensors[t].shard]);
  }
  if (index.total_size != 0 && index.total_size != total_bytes) {
    fail(ErrorCode::kCorrupt, "{}: total_size is {}, the tensors have {} bytes", where, index.total_size, total_bytes);
  }
}

Checkpoint::Checkpoint() : state_(std::make_unique<State>()) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const fs::path& folder, Access access) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) fail(ErrorCode::kNotFound, "{}: not a folder", folder.string());
  Checkpoint checkpoint;
  State& state = *checkpoint.state_;
  state.folder = folder;
  const std::optional<CheckpointIndex> index = find_index(folder);
  state.names = index ? index->shards : std::vector<std::string>{kSingleShard};
  state.open_shards(access);
  state.collect_tensors();
  if (index) state.check_against(*index);
  return checkpoint;
}

const fs::path& Checkpoint::folder() const {
  return state_->folder;
}
const std::vector<std::string>& Checkpoint::shards() const {
  return state_->names;
}
const std::vector<TensorRef>& Checkpoint::tensors() const {
  return state_->tensors;
}
uint64_t Checkpoint::total_tensor_bytes() const {
  return state_->total_bytes;
}

const SafetensorsHeader& Checkpoint::header(uint32_t shard) const {
  TREFOIL_CHECK(shard < state_->shards.size());
  return state_->shards[shard].header;
}

const TensorRef* Checkpoint::find(std::string_view name) const {
  const auto& all = state_->tensors;
  const auto it = std::lower_bound(all.begin(), all.end(), name, [](const TensorRef& tensor, std::string_view wanted) {
    return tensor.info.name < wanted;
  });
  return it != all.end() && it->info.name == name ? &*it : nullptr;
}

const TensorRef& Checkpoint::at(std::string_view name) const {
  const TensorRef* tensor = find(name);
  if (tensor == nullptr) fail(ErrorCode::kNotFound, "{}: there is no tensor {}", folder().string(), name);
  return *tensor;
}

bool Checkpoint::is_mapped() const {
  return !state_->shards.empty() && state_->shards.front().mapping != nullptr;
}

TensorView Checkpoint::view(const TensorRef& tensor) const {
  const Shard& shard = state_->shards[tensor.shard];
  if (shard.mapping == nullptr) {
    fail(ErrorCode::kUnsupported, "{}: {} was opened for reading and cannot be viewed in place", folder().string(),
         tensor.info.name);
  }
  const Bytes data = shard.mapping->bytes().subspan(state_->file_offset(tensor), tensor.info.size());
  return {tensor.info.dtype, tensor.info.shape, data};
}

void Checkpoint::read(const TensorRef& tensor, uint64_t offset, MutableBytes out) const {
  TREFOIL_CHECK(offset <= tensor.info.size() && out.size() <= tensor.info.size() - offset);
  if (out.empty()) return;
  const Shard& shard = state_->shards[tensor.shard];
  const uint64_t begin = state_->file_offset(tensor) + offset;
  if (shard.mapping != nullptr) {
    std::memcpy(out.data(), shard.mapping->bytes().data() + begin, out.size());
  } else {
    shard.file->read_at(begin, out);
  }
}

void Checkpoint::read_ahead(const TensorRef& tensor) const {
  const Shard& shard = state_->shards[tensor.shard];
  if (shard.mapping == nullptr) shard.file->read_ahead(state_->file_offset(tensor), tensor.info.size());
}

std::vector<std::byte> Checkpoint::read_all(const TensorRef& tensor) const {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.info.size()));
  read(tensor, 0, bytes);
  return bytes;
}

}  // namespace trefoil
