#include "support/raw_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trefoil::testing {

std::string raw_container(const std::string& json, const std::string& data) {
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + json + data;
}

std::string raw_safetensors(const std::vector<RawTensor>& tensors) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const RawTensor& tensor : tensors) {
    json += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name, tensor.dtype,
                        fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  return raw_container(json + "}", data);
}

std::string raw_index(const RawShards& shards) {
  size_t total_size = 0;
  std::string map;
  for (const auto& [shard, tensors] : shards) {
    for (const RawTensor& tensor : tensors) {
      map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", tensor.name, shard);
      total_size += tensor.bytes.size();
    }
  }
  return fmt::format(R"({{"metadata":{{"total_size":{}}},"weight_map":{{{}}}}})", total_size, map);
}

void write_raw_checkpoint(const fs::path& folder, const RawShards& shards) {
  for (const auto& [shard, tensors] : shards) write_text(folder / shard, raw_safetensors(tensors));
  write_text(folder / "model.safetensors.index.json", raw_index(shards));
}

}  // namespace trefoil::testing
