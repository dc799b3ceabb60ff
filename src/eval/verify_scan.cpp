#include "eval/verify_scan.h"

#include <algorithm>
#include <map>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/folder_files.h"

namespace trefoil {

namespace {

bool name_less(const ScannedTensor& a, const ScannedTensor& b) {
  if (a.info->name != b.info->name) return a.info->name < b.info->name;
  return a.shard < b.shard;
}

}  // namespace

FolderScan::FolderScan(const fs::path& folder) : folder_(folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) fail(ErrorCode::kNotFound, "{}: not a folder", folder.string());
  scan_index();
  scan_files();
  scan_config();
  open_shards();
}

void FolderScan::scan_index() {
  std::error_code error;
  has_index_ = fs::exists(folder_ / kIndexFile, error);
  if (!has_index_) return;
  try {
    index_ = load_index(folder_ / kIndexFile);
  } catch (const Error& unreadable) {
    index_error_ = unreadable.what();
  }
}

// Shards are what the index names and what the folder holds; either may lack what the other has.
void FolderScan::scan_files() {
  std::map<std::string, ScannedShard> shards;
  if (index_) {
    for (const std::string& name : index_->shards) shards[name].in_index = true;
  }
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!it->is_regular_file(ignored)) continue;
    const std::string name = it->path().filename().string();
    const auto known = shards.find(name);
    if (known != shards.end() || name.ends_with(".safetensors")) shards[name].in_folder = true;
  }
  if (error) fail(ErrorCode::kIo, "{}: cannot list the folder: {}", folder_.string(), error.message());
  side_files_ = side_files_of(folder_);
  for (auto& [name, shard] : shards) {
    shard.name = name;
    shards_.push_back(std::move(shard));
  }
}

void FolderScan::scan_config() {
  try {
    config_text_ = read_text_file(folder_ / kConfigFile);
    config_ = parse_model_config(*config_text_, kConfigFile);
  } catch (const Error& unreadable) {
    config_error_ = unreadable.what();
  }
}

void FolderScan::open_shards() {
  for (ScannedShard& shard : shards_) {
    if (!shard.in_folder) continue;
    try {
      shard.file = std::make_unique<InputFile>(folder_ / shard.name);
      shard.header = read_safetensors_header(*shard.file);
    } catch (const Error& unreadable) {
      shard.error = unreadable.what();
      shard.header = {};
    }
  }
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    for (const TensorInfo& info : shards_[i].header.tensors) tensors_.push_back({&info, i});
  }
  std::sort(tensors_.begin(), tensors_.end(), name_less);
}

const ScannedTensor* FolderScan::find(std::string_view name) const {
  const auto it =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const ScannedTensor& tensor, std::string_view wanted) { return tensor.info->name < wanted; });
  return it != tensors_.end() && it->info->name == name ? &*it : nullptr;
}

void FolderScan::read(const ScannedTensor& tensor, uint64_t offset, MutableBytes out) const {
  TREFOIL_CHECK(offset <= tensor.info->size() && out.size() <= tensor.info->size() - offset);
  const ScannedShard& shard = shards_[tensor.shard];
  shard.file->read_at(shard.header.data_start + tensor.info->begin + offset, out);
}

std::vector<std::byte> FolderScan::read_all(const ScannedTensor& tensor) const {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.info->size()));
  read(tensor, 0, bytes);
  return bytes;
}

}  // namespace trefoil
