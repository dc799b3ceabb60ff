// The safetensors container. docs/formats.md, "safetensors".
//
//   8 bytes little-endian N | N bytes of JSON | data
//   JSON: name -> {"dtype", "shape", "data_offsets": [begin, end)} relative to the data, and "__metadata__": {string:
//   string}
//
// The reader trusts nothing: N <= 100,000,000 and within the file, every tensor's size equals its offsets, tensors tile
// the data exactly (no gap, no overlap, last end = end of file), no duplicate name or key. Each refusal is an
// Error(kCorrupt) naming the file, the tensor, what was expected and what was found.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.h"
#include "tensor/tensor_view.h"

namespace trefoil {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  uint64_t begin = 0;  // bytes from the start of the data
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in order of `begin` (ties, empty tensors: by name)
  std::map<std::string, std::string> metadata;
  uint64_t data_start = 0;  // file offset of the data: 8 + N
};

// `json` is the N header bytes, `file_size` the whole file's size, `file` only names it in messages.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t file_size, const std::string& file);

// Reads the header of an open file.
SafetensorsHeader read_safetensors_header(const InputFile& file);

// What a writer intends to write: sizes follow from dtype and shape, offsets from the order.
struct TensorPlan {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
};

// Writes one shard. Tensors must arrive in the planned order with exactly the planned bytes; commit() checks that all
// came, and only then does the file appear under its name. The header is padded with spaces so that the data starts at
// a multiple of `data_alignment` (8 as the reference writer does, 4096 so that experts can be read directly).
class SafetensorsWriter {
 public:
  SafetensorsWriter(const fs::path& path, std::vector<TensorPlan> plan, uint64_t data_alignment = 8,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  // `name` must be the next planned tensor. May be called several times per tensor with consecutive pieces.
  void write(std::string_view name, Bytes bytes);
  void commit();

 private:
  AtomicFile file_;
  std::vector<TensorPlan> plan_;
  size_t current_ = 0;
  uint64_t written_of_current_ = 0;
};

// A shard that is filled in any order, perhaps by several processes and over several runs (WorkFile). Its header and
// size are those of SafetensorsWriter from the start; which tensors are in it, its user knows.
class SafetensorsStage {
 public:
  // Makes the file, or goes on with one that is there: it gets this size and header, and keeps the bytes behind it.
  SafetensorsStage(const fs::path& path, std::vector<TensorPlan> plan, uint64_t data_alignment,
                   const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  const fs::path& path() const { return file_.path(); }
  // Where a planned tensor begins in the file.
  uint64_t offset_of(std::string_view name) const { return range_of(name, 0, 0).begin; }
  // Bytes [offset, offset + bytes.size()) of a planned tensor.
  void write(std::string_view name, uint64_t offset, Bytes bytes);
  void read(std::string_view name, uint64_t offset, MutableBytes out) const;
  void sync() { file_.sync(); }

 private:
  struct Range {
    uint64_t begin = 0;  // in the file
    uint64_t size = 0;
  };
  const Range& range_of(std::string_view name, uint64_t offset, uint64_t count) const;

  std::string head_;  // everything before the data
  std::map<std::string, Range, std::less<>> begin_;
  WorkFile file_;
};

}  // namespace trefoil
