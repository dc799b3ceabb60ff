// What lies in a checkpoint folder, read as far as it can be read. Checkpoint::open stops at the first contradiction;
// this keeps going and remembers each, so that verify() can report all of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"

namespace trefoil {

struct ScannedShard {
  std::string name;
  bool in_index = false;
  bool in_folder = false;
  std::unique_ptr<InputFile> file;  // null when it cannot be opened
  SafetensorsHeader header;         // empty when `error` is not
  std::string error;                // why it cannot be opened or its header cannot be read
};

struct ScannedTensor {
  const TensorInfo* info = nullptr;
  uint32_t shard = 0;
};

class FolderScan {
 public:
  // Error(kNotFound) when `folder` is not a folder; nothing inside it makes this fail.
  explicit FolderScan(const fs::path& folder);

  const fs::path& folder() const { return folder_; }
  const std::vector<ScannedShard>& shards() const { return shards_; }     // of the index and of the folder, by name
  const std::vector<ScannedTensor>& tensors() const { return tensors_; }  // by name, then shard; a name may repeat
  const ScannedTensor* find(std::string_view name) const;                 // the first of that name; null when absent
  const std::string& shard_name(const ScannedTensor& tensor) const { return shards_[tensor.shard].name; }

  bool has_index() const { return has_index_; }                           // the file is there
  const std::optional<CheckpointIndex>& index() const { return index_; }  // nothing when absent or unreadable
  const std::string& index_error() const { return index_error_; }

  const std::optional<std::string>& config_text() const { return config_text_; }
  const std::optional<ModelConfig>& config() const { return config_; }
  const std::string& config_error() const { return config_error_; }

  // side_files_of() this folder.
  const std::vector<std::string>& side_files() const { return side_files_; }

  // Copies bytes [offset, offset + out.size()) of a tensor of tensors(). Error(kIo).
  void read(const ScannedTensor& tensor, uint64_t offset, MutableBytes out) const;
  std::vector<std::byte> read_all(const ScannedTensor& tensor) const;

 private:
  void scan_index();
  void scan_files();
  void scan_config();
  void open_shards();

  fs::path folder_;
  std::vector<ScannedShard> shards_;
  std::vector<ScannedTensor> tensors_;
  bool has_index_ = false;
  std::optional<CheckpointIndex> index_;
  std::string index_error_;
  std::optional<std::string> config_text_;
  std::optional<ModelConfig> config_;
  std::string config_error_;
  std::vector<std::string> side_files_;
};

}  // namespace trefoil
