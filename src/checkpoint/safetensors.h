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

}  // namespace trefoil
