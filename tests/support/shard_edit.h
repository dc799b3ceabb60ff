// Editing checkpoints behind the readers' backs, to plant faults.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace trefoil::testing {

using Json = nlohmann::ordered_json;

// A shard as its two parts. Nothing is checked on the way in or out.
struct RawShard {
  Json header;
  std::string data;
};
RawShard read_raw_shard(const std::filesystem::path& path);
void write_raw_shard(const std::filesystem::path& path, const RawShard& shard);
// The same with the header's text as given, which may be anything.
void write_raw_shard(const std::filesystem::path& path, const std::string& header, const std::string& data);

// The file name of the shard whose header names the tensor.
std::string shard_of(const std::filesystem::path& folder, const std::string& tensor);

// Reads or overwrites bytes of a tensor in place.
std::string tensor_bytes(const std::filesystem::path& folder, const std::string& tensor);
void overwrite(const std::filesystem::path& folder, const std::string& tensor, size_t offset, const std::string& bytes);
void flip_bit(const std::filesystem::path& folder, const std::string& tensor, size_t byte, int bit);

// Removes a tensor from its shard, closing the gap, and its entry from the index.
void remove_tensor(const std::filesystem::path& folder, const std::string& tensor);
// Appends a tensor to a shard and to the index.
void add_tensor(const std::filesystem::path& folder, const std::string& shard, const std::string& tensor,
                const std::string& dtype, const std::vector<int64_t>& shape, const std::string& bytes);

// Rewrites a JSON file of the folder.
void edit_json(const std::filesystem::path& folder, const std::string& file, const std::function<void(Json&)>& edit);
// total_size and weight_map from the shards' headers.
void rebuild_index(const std::filesystem::path& folder);

// The bundled model cut down to its first `layers` layers and `experts` experts, so that tests that run often are
// quick. `layers` is at most 3 (all KDA). Shard names stay; shards of cut layers are absent.
void write_cut_model(const std::filesystem::path& folder, int64_t layers, int64_t experts);

}  // namespace trefoil::testing
