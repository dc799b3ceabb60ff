// A checkpoint folder: config.json, model.safetensors.index.json (or one model.safetensors), shards, side files.
// Opening checks the index against the shard headers in both directions: a tensor named in the index and absent from
// its shard, a tensor in a shard and absent from the index, one name in two shards, a missing or truncated shard, and a
// wrong total_size are all Error(kCorrupt) (a missing shard: kNotFound). Names never lead outside the folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/safetensors.h"
#include "tensor/tensor_view.h"

namespace trefoil {

// model.safetensors.index.json: which shard holds which tensor.
struct CheckpointIndex {
  struct Entry {
    std::string name;
    uint32_t shard = 0;  // into shards
  };
  std::vector<std::string> shards;  // file names, sorted, each a plain name without '/' or ".."
  std::vector<Entry> entries;       // sorted by name
  uint64_t total_size = 0;          // metadata.total_size; 0 when absent

  // Null when absent.
  const Entry* find(std::string_view name) const;
};

// `file` names the index in messages. Error(kCorrupt) for anything that is not a well-formed index, duplicates
// included.
CheckpointIndex parse_index(std::string_view json, const std::string& file);
// The same from a file, without a second copy of its text in memory.
CheckpointIndex load_index(const fs::path& path);
// As the reference writer: two spaces of indent, names sorted, a newline at the end. A total_size of 0 is left out.
std::string write_index(const CheckpointIndex& index);

// Where a tensor is.
struct TensorRef {
  TensorInfo info;
  uint32_t shard = 0;
};

class Checkpoint {
 public:
  // How tensor bytes are read: through a mapping, or copied by pread. A shard's size is checked against its header when
  // it is opened. One that shrinks later is an Error(kIo) under kRead; touching the lost pages of a mapping is a SIGBUS
  // that no library can turn into an Error, so use kRead on files that others may be writing.
  enum class Access { kMapped, kRead };

  // Reads the index and every shard's header, none of the data.
  static Checkpoint open(const fs::path& folder, Access access = Access::kMapped);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const fs::path& folder() const;
  const std::vector<std::string>& shards() const;         // file names in index order (sorted)
  const SafetensorsHeader& header(uint32_t shard) const;  // tensors in file order
  const std::vector<TensorRef>& tensors() const;          // sorted by name
  const TensorRef* find(std::string_view name) const;     // null when absent
  // Error(kNotFound) naming the tensor when absent.
  const TensorRef& at(std::string_view name) const;

  bool is_mapped() const;  // opened with Access::kMapped
  // The tensor's bytes. Valid while the checkpoint lives, moves included; with Access::kRead it is an
  // Error(kUnsupported) to call this (use read()).
  TensorView view(const TensorRef& tensor) const;
  // Copies bytes [offset, offset + out.size()) of the tensor, which must lie inside it.
  void read(const TensorRef& tensor, uint64_t offset, MutableBytes out) const;
  // A hint that the whole tensor is read soon; nothing with Access::kMapped.
  void read_ahead(const TensorRef& tensor) const;
  // The whole tensor, copied.
  std::vector<std::byte> read_all(const TensorRef& tensor) const;

  uint64_t total_tensor_bytes() const;

 private:
  Checkpoint();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trefoil
