// Small checkpoints written byte by byte, right or wrong on purpose. Shares no code with the writers under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "support/test_support.h"

namespace trefoil::testing {

struct RawTensor {
  std::string name;
  std::string dtype;  // as in a safetensors header
  std::vector<int64_t> shape;
  std::string bytes;
};

// The elements' bytes, for RawTensor::bytes.
template <typename T>
std::string raw_bytes(const std::vector<T>& elements) {
  std::string bytes(elements.size() * sizeof(T), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

// 8 bytes of length, the JSON, the data.
std::string raw_container(const std::string& json, const std::string& data);
// A whole safetensors file with the tensors in this order, offsets from the bytes' sizes.
std::string raw_safetensors(const std::vector<RawTensor>& tensors);

// Shard file name -> its tensors.
using RawShards = std::map<std::string, std::vector<RawTensor>>;
std::string raw_index(const RawShards& shards);
// Writes the shards and model.safetensors.index.json into the folder.
void write_raw_checkpoint(const fs::path& folder, const RawShards& shards);

}  // namespace trefoil::testing
