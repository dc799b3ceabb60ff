// model.safetensors.index.json: reading and writing CheckpointIndex (checkpoint.h).
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/json_text.h"

namespace trefoil {
namespace {

using simdjson::dom::element;

constexpr uint64_t kLargestIndex = 1ull << 31;  // K3's has 60 MB for 497,220 tensors

// An entry while the JSON document is alive: views instead of half a million strings.
struct Mapping {
  std::string_view tensor;
  uint32_t shard = 0;
};

// A shard's name is joined to the checkpoint's folder, so it must not lead anywhere else.
void check_shard_name(std::string_view shard, std::string_view tensor, const std::string& file) {
  const bool plain = is_printable_name(shard) && shard.find_first_of("/\\") == std::string_view::npos &&
                     shard.find("..") == std::string_view::npos && shard != ".";
  if (!plain) fail(ErrorCode::kCorrupt, "{}: {}: {} is not a plain file name", file, tensor, quoted(shard));
}

// Writers that count in floating point leave "1.6e10"; anything else must be an integer.
uint64_t parse_total_size(const JsonDocument& json, element value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  double number = 0;
  if (value.is<double>() && value.get(number) == simdjson::SUCCESS && number >= 0 && number <= kExact &&
      number == std::floor(number)) {
    return static_cast<uint64_t>(number);
  }
  return json.size(value, "metadata.total_size");
}

struct Parts {
  uint64_t total_size = 0;
  bool has_total_size = false;
  std::vector<Mapping> mappings;
  std::vector<std::string_view> shards;  // sorted, each once
};

void parse_metadata(const JsonDocument& json, element value, Parts& parts) {
  for (const auto field : json.object(value, "metadata")) {
    if (field.key != "total_size") continue;  // newer writers add total_parameters and more
    if (parts.has_total_size) fail(ErrorCode::kCorrupt, "{}: metadata.total_size appears twice", json.subject());
    parts.total_size = parse_total_size(json, field.value);
    parts.has_total_size = true;
  }
}

// Neighbours usually share a shard, so the last one found is tried first; `shards` is in order of first appearance
// here.
class ShardNames {
 public:
  uint32_t number_of(std::string_view shard) {
    if (!names_.empty() && names_[last_] == shard) return last_;
    const auto [it, inserted] = numbers_.emplace(shard, static_cast<uint32_t>(names_.size()));
    if (inserted) names_.push_back(shard);
    last_ = it->second;
    return last_;
  }
  const std::vector<std::string_view>& names() const { return names_; }
  // For each number the position of its name in sorted order.
  std::vector<uint32_t> ranks() const {
    std::vector<uint32_t> ranks(names_.size());
    uint32_t rank = 0;
    for (const auto& [name, number] : numbers_) ranks[number] = rank++;
    return ranks;
  }

 private:
  std::map<std::string_view, uint32_t> numbers_;
  std::vector<std::string_view> names_;
  uint32_t last_ = 0;
};

void parse_weight_map(const JsonDocument& json, element value, Parts& parts) {
  const simdjson::dom::object map = json.object(value, "weight_map");
  parts.mappings.reserve(map.size());
  ShardNames shards;
  for (const auto field : map) {
    if (!is_printable_name(field.key)) {
      fail(ErrorCode::kCorrupt, "{}: a tensor name is empty or has control characters", json.subject());
    }
    std::string_view shard;
    if (field.value.get(shard))
      fail(ErrorCode::kCorrupt, "{}: {}: the shard is not a string", json.subject(), field.key);
    const size_t known = shards.names().size();
    const uint32_t number = shards.number_of(shard);
    if (number == known) check_shard_name(shard, field.key, json.subject());
    parts.mappings.push_back({field.key, number});
  }
  const std::vector<uint32_t> ranks = shards.ranks();
  for (Mapping& mapping : parts.mappings) mapping.shard = ranks[mapping.shard];
  parts.shards = shards.names();
  std::sort(parts.shards.begin(), parts.shards.end());
}

Parts parse_parts(const JsonDocument& json) {
  Parts parts;
  bool has_metadata = false;
  bool has_map = false;
  for (const auto field : json.object(json.root(), "the index")) {
    bool* seen = field.key == "metadata" ? &has_metadata : field.key == "weight_map" ? &has_map : nullptr;
    if (seen == nullptr) continue;
    if (*seen) fail(ErrorCode::kCorrupt, "{}: \"{}\" appears twice", json.subject(), field.key);
    *seen = true;
    if (seen == &has_map) {
      parse_weight_map(json, field.value, parts);
    } else {
      parse_metadata(json, field.value, parts);
    }
  }
  if (!has_map) fail(ErrorCode::kCorrupt, "{}: there is no weight_map", json.subject());
  if (parts.has_total_size && parts.total_size == 0 && !parts.mappings.empty()) {
    fail(ErrorCode::kCorrupt, "{}: metadata.total_size is 0 for {} tensors", json.subject(), parts.mappings.size());
  }
  return parts;
}

void sort_by_name(std::vector<Mapping>& mappings, const std::string& file) {
  const auto by_name = [](const Mapping& a, const Mapping& b) { return a.tensor < b.tensor; };
  if (!std::is_sorted(mappings.begin(), mappings.end(), by_name)) std::sort(mappings.begin(), mappings.end(), by_name);
  const auto twice = std::adjacent_find(mappings.begin(), mappings.end(),
                                        [](const Mapping& a, const Mapping& b) { return a.tensor == b.tensor; });
  if (twice != mappings.end())
    fail(ErrorCode::kCorrupt, "{}: tensor {} appears twice in weight_map", file, twice->tensor);
}

CheckpointIndex build_index(const JsonDocument& json) {
  Parts parts = parse_parts(json);
  sort_by_name(parts.mappings, json.subject());
  CheckpointIndex index;
  index.total_size = parts.total_size;
  index.shards.assign(parts.shards.begin(), parts.shards.end());
  index.entries.reserve(parts.mappings.size());
  for (const Mapping& mapping : parts.mappings) index.entries.push_back({std::string(mapping.tensor), mapping.shard});
  return index;
}

}  // namespace

const CheckpointIndex::Entry* CheckpointIndex::find(std::string_view name) const {
  const auto it = std::lower_bound(entries.begin(), entries.end(), name,
                                   [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return it != entries.end() && it->name == name ? &*it : nullptr;
}

CheckpointIndex parse_index(std::string_view json, const std::string& file) {
  return build_index(JsonDocument(json, file));
}

CheckpointIndex load_index(const fs::path& path) {
  const InputFile file(path);
  if (file.size() > kLargestIndex) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes, at most {} are expected of an index", path.string(), file.size(),
         kLargestIndex);
  }
  std::string text;
  text.reserve(static_cast<size_t>(file.size()) + simdjson::SIMDJSON_PADDING);
  text.resize(static_cast<size_t>(file.size()));
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return build_index(JsonDocument(text, path.string()));
}

std::string write_index(const CheckpointIndex& index) {
  std::string json = "{\n  \"metadata\": {";
  if (index.total_size != 0) json += fmt::format("\n    \"total_size\": {}\n  ", index.total_size);
  json += "},\n  \"weight_map\": {";
  for (const CheckpointIndex::Entry& entry : index.entries) {
    json += &entry == index.entries.data() ? "\n    " : ",\n    ";
    append_json_string(json, entry.name);
    json += ": ";
    append_json_string(json, index.shards[entry.shard]);
  }
  json += index.entries.empty() ? "}\n}\n" : "\n  }\n}\n";
  return json;
}

}  // namespace trefoil
