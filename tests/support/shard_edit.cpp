#include "support/shard_edit.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <vector>

#include "support/test_support.h"

namespace trefoil::testing {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

std::vector<fs::path> shards_of(const fs::path& folder) {
  std::vector<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

struct Location {
  fs::path shard;
  size_t begin = 0;  // in the shard's data
  size_t end = 0;
};

Location locate(const fs::path& folder, const std::string& tensor) {
  for (const fs::path& path : shards_of(folder)) {
    const Json header = read_raw_shard(path).header;
    if (!header.contains(tensor)) continue;
    const auto& offsets = header[tensor]["data_offsets"];
    return {path, offsets[0].get<size_t>(), offsets[1].get<size_t>()};
  }
  throw std::runtime_error("no shard has " + tensor);
}

// Appends the tensor to `shard` with the bytes it has in `from`.
void append(RawShard& shard, const std::string& name, Json entry, const std::string& bytes) {
  entry["data_offsets"] = {shard.data.size(), shard.data.size() + bytes.size()};
  shard.header[name] = entry;
  shard.data += bytes;
}

std::vector<std::string> names_in_file_order(const Json& header) {
  std::vector<std::string> names;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") names.push_back(name);
  }
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return header[a]["data_offsets"][0].get<size_t>() < header[b]["data_offsets"][0].get<size_t>();
  });
  return names;
}

// The shard with the tensors `keep` accepts, in the same order.
RawShard filtered(const RawShard& shard, const std::function<bool(const std::string&)>& keep) {
  RawShard result;
  if (shard.header.contains("__metadata__")) result.header["__metadata__"] = shard.header["__metadata__"];
  for (const std::string& name : names_in_file_order(shard.header)) {
    if (!keep(name)) continue;
    const Json& entry = shard.header[name];
    const auto begin = entry["data_offsets"][0].get<size_t>();
    const auto end = entry["data_offsets"][1].get<size_t>();
    append(result, name, entry, shard.data.substr(begin, end - begin));
  }
  return result;
}

// The router scores one row an expert: the shard with the first `experts` of them.
RawShard with_cut_router(const RawShard& shard, int64_t experts) {
  RawShard result;
  if (shard.header.contains("__metadata__")) result.header["__metadata__"] = shard.header["__metadata__"];
  for (const std::string& name : names_in_file_order(shard.header)) {
    Json entry = shard.header[name];
    const auto begin = entry["data_offsets"][0].get<size_t>();
    auto size = entry["data_offsets"][1].get<size_t>() - begin;
    if (name.find(".block_sparse_moe.gate.") != std::string::npos) {
      size = size / entry["shape"][0].get<size_t>() * static_cast<size_t>(experts);
      entry["shape"][0] = experts;
    }
    append(result, name, entry, shard.data.substr(begin, size));
  }
  return result;
}

// The number after `word` in `name`, or -1.
int64_t number_after(const std::string& name, const std::string& word) {
  const size_t at = name.find(word);
  return at == std::string::npos ? -1 : std::stoll(name.substr(at + word.size()));
}

}  // namespace

RawShard read_raw_shard(const fs::path& path) {
  const std::string file = read_text(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  return {Json::parse(file.substr(8, length)), file.substr(8 + length)};
}

void write_raw_shard(const fs::path& path, const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  write_text(path, file + header + data);
}

void write_raw_shard(const fs::path& path, const RawShard& shard) {
  std::string header = shard.header.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  write_raw_shard(path, header, shard.data);
}

std::string shard_of(const fs::path& folder, const std::string& tensor) {
  return locate(folder, tensor).shard.filename().string();
}

std::string tensor_bytes(const fs::path& folder, const std::string& tensor) {
  const Location at = locate(folder, tensor);
  return read_raw_shard(at.shard).data.substr(at.begin, at.end - at.begin);
}

// In place on the file's bytes, so that the header keeps its own.
void overwrite(const fs::path& folder, const std::string& tensor, size_t offset, const std::string& bytes) {
  const Location at = locate(folder, tensor);
  if (at.begin + offset + bytes.size() > at.end) throw std::runtime_error("overwrite: outside " + tensor);
  std::string file = read_text(at.shard);
  const size_t data_start = file.size() - read_raw_shard(at.shard).data.size();
  file.replace(data_start + at.begin + offset, bytes.size(), bytes);
  write_text(at.shard, file);
}

void flip_bit(const fs::path& folder, const std::string& tensor, size_t byte, int bit) {
  const char old = tensor_bytes(folder, tensor).at(byte);
  overwrite(folder, tensor, byte, std::string(1, static_cast<char>(old ^ (1 << bit))));
}

void remove_tensor(const fs::path& folder, const std::string& tensor) {
  const fs::path path = locate(folder, tensor).shard;
  write_raw_shard(path, filtered(read_raw_shard(path), [&](const std::string& name) { return name != tensor; }));
  rebuild_index(folder);
}

void add_tensor(const fs::path& folder, const std::string& shard, const std::string& tensor, const std::string& dtype,
                const std::vector<int64_t>& shape, const std::string& bytes) {
  RawShard raw = read_raw_shard(folder / shard);
  append(raw, tensor, {{"dtype", dtype}, {"shape", shape}}, bytes);
  write_raw_shard(folder / shard, raw);
  rebuild_index(folder);
}

void edit_json(const fs::path& folder, const std::string& file, const std::function<void(Json&)>& edit) {
  Json document = Json::parse(read_text(folder / file));
  edit(document);
  write_text(folder / file, document.dump(2) + "\n");
}

void rebuild_index(const fs::path& folder) {
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  uint64_t total = 0;
  for (const fs::path& path : shards_of(folder)) {
    const RawShard shard = read_raw_shard(path);
    for (const std::string& name : names_in_file_order(shard.header))
      index["weight_map"][name] = path.filename().string();
    total += shard.data.size();
  }
  index["metadata"]["total_size"] = total;
  write_text(folder / kIndex, index.dump(2) + "\n");
}

void write_cut_model(const fs::path& folder, int64_t layers, int64_t experts) {
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(tiny_k3_dir())) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".safetensors") {
      write_text(folder / name, read_text(entry.path()));
      continue;
    }
    const RawShard cut = filtered(read_raw_shard(entry.path()), [&](const std::string& tensor) {
      return number_after(tensor, "model.layers.") < layers &&
             number_after(tensor, ".block_sparse_moe.experts.") < experts;
    });
    if (!cut.data.empty()) write_raw_shard(folder / name, with_cut_router(cut, experts));
  }
  edit_json(folder, "config.json", [&](Json& config) {
    Json& text = config["text_config"];
    text["num_hidden_layers"] = layers;
    text["num_experts"] = experts;
    text["num_experts_per_token"] = std::min<int64_t>(experts, text["num_experts_per_token"]);
    text["linear_attn_config"]["kda_layers"] = Json::array();
    text["linear_attn_config"]["full_attn_layers"] = Json::array();
    for (int64_t layer = 1; layer <= layers; ++layer) text["linear_attn_config"]["kda_layers"].push_back(layer);
  });
  rebuild_index(folder);
}

}  // namespace trefoil::testing
