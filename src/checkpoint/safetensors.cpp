#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/json_text.h"

namespace trefoil {
namespace {

using simdjson::dom::element;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the reference implementation's limit
constexpr std::string_view kMetadataKey = "__metadata__";

// ---- reading ----

std::map<std::string, std::string> parse_metadata(const JsonDocument& json, element value) {
  std::map<std::string, std::string> metadata;
  for (const auto field : json.object(value, kMetadataKey)) {
    const std::string_view text = json.string(field.value, fmt::format("{} {}", kMetadataKey, quoted(field.key)));
    if (!metadata.emplace(field.key, text).second) {
      fail(ErrorCode::kCorrupt, "{}: {} holds {} twice", json.subject(), kMetadataKey, quoted(field.key));
    }
  }
  return metadata;
}

DType parse_dtype_field(const JsonDocument& json, element value, const std::string& tensor) {
  const std::string_view name = json.string(value, tensor + ": dtype");
  const std::optional<DType> dtype = parse_dtype(name);
  if (!dtype) fail(ErrorCode::kUnsupported, "{}: {}: unknown dtype {}", json.subject(), tensor, quoted(name));
  return *dtype;
}

Shape parse_shape(const JsonDocument& json, element value, const std::string& tensor) {
  Shape shape;
  const simdjson::dom::array dims = json.array(value, tensor + ": shape");
  shape.reserve(dims.size());
  for (const element dim : dims) {
    shape.push_back(static_cast<int64_t>(json.size(dim, tensor + ": a dimension of shape")));
  }
  return shape;
}

std::pair<uint64_t, uint64_t> parse_offsets(const JsonDocument& json, element value, const std::string& tensor) {
  const simdjson::dom::array offsets = json.array(value, tensor + ": data_offsets");
  if (offsets.size() != 2) {
    fail(ErrorCode::kCorrupt, "{}: {}: data_offsets has {} numbers, expected 2", json.subject(), tensor,
         offsets.size());
  }
  std::array<uint64_t, 2> pair{};
  size_t i = 0;
  for (const element offset : offsets) pair[i++] = json.size(offset, tensor + ": a number of data_offsets");
  return {pair[0], pair[1]};
}

// The size that dtype and shape imply must be the size that the offsets give.
void check_size(const JsonDocument& json, const TensorInfo& tensor) {
  uint64_t expected = 0;
  if (!byte_size_of(tensor.shape, tensor.dtype, &expected)) {
    fail(ErrorCode::kCorrupt, "{}: {}: the size of {} {} does not fit 63 bits", json.subject(), tensor.name,
         to_string(tensor.dtype), to_string(tensor.shape));
  }
  if (tensor.begin > tensor.end || tensor.end - tensor.begin != expected) {
    fail(ErrorCode::kCorrupt, "{}: {}: data_offsets [{}, {}] do not hold the {} bytes of {} {}", json.subject(),
         tensor.name, tensor.begin, tensor.end, expected, to_string(tensor.dtype), to_string(tensor.shape));
  }
}

TensorInfo parse_tensor(const JsonDocument& json, std::string_view name, element value) {
  TensorInfo tensor;
  tensor.name = name;
  if (!is_printable_name(name)) {
    fail(ErrorCode::kCorrupt, "{}: a tensor name is empty or has control characters", json.subject());
  }
  std::optional<element> dtype, shape, offsets;
  for (const auto field : json.object(value, tensor.name)) {
    std::optional<element>* slot = field.key == "dtype"          ? &dtype
                                   : field.key == "shape"        ? &shape
                                   : field.key == "data_offsets" ? &offsets
                                                                 : nullptr;
    if (slot == nullptr) fail(ErrorCode::kCorrupt, "{}: {}: unknown key {}", json.subject(), name, quoted(field.key));
    if (*slot) fail(ErrorCode::kCorrupt, "{}: {}: \"{}\" appears twice", json.subject(), name, field.key);
    *slot = field.value;
  }
  if (!dtype || !shape || !offsets) {
    fail(ErrorCode::kCorrupt, "{}: {}: dtype, shape and data_offsets are needed and one is missing", json.subject(),
         name);
  }
  tensor.dtype = parse_dtype_field(json, *dtype, tensor.name);
  tensor.shape = parse_shape(json, *shape, tensor.name);
  std::tie(tensor.begin, tensor.end) = parse_offsets(json, *offsets, tensor.name);
  check_size(json, tensor);
  return tensor;
}

void sort_by_offset(std::vector<TensorInfo>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
}

void check_no_name_twice(const std::vector<TensorInfo>& tensors, const std::string& subject) {
  std::vector<std::string_view> names(tensors.size());
  std::transform(tensors.begin(), tensors.end(), names.begin(),
                 [](const TensorInfo& t) { return std::string_view(t.name); });
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorCode::kCorrupt, "{}: tensor {} appears twice", subject, *twice);
}

// In order of offset each tensor begins where the one before it ended, and the last ends where the file does.
void check_tiling(const std::vector<TensorInfo>& tensors, uint64_t data_size, const std::string& subject) {
  uint64_t expected = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != expected) {
      fail(ErrorCode::kCorrupt, "{}: {} begins at {}, expected {}: tensors {}", subject, tensor.name, tensor.begin,
           expected, tensor.begin < expected ? "overlap" : "leave a gap");
    }
    expected = tensor.end;
  }
  if (expected != data_size) {
    fail(ErrorCode::kCorrupt, "{}: tensors end at {} but the file holds {} bytes of data: {}", subject, expected,
         data_size, expected > data_size ? "it is truncated" : "there are bytes after the last tensor");
  }
}

// ---- writing ----

void check_plan(const std::vector<TensorPlan>& plan, const std::string& path) {
  std::vector<std::string_view> names;
  names.reserve(plan.size());
  for (const TensorPlan& tensor : plan) {
    if (!is_printable_name(tensor.name) || tensor.name == kMetadataKey) {
      fail(ErrorCode::kInvalidArgument, "{}: \"{}\" cannot be a tensor's name", path, tensor.name);
    }
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorCode::kInvalidArgument, "{}: tensor {} is planned twice", path, *twice);
}

uint64_t planned_size(const TensorPlan& tensor) {
  uint64_t size = 0;
  if (!byte_size_of(tensor.shape, tensor.dtype, &size)) {
    fail(ErrorCode::kInvalidArgument, "{}: the size of {} does not fit 63 bits", tensor.name, to_string(tensor.shape));
  }
  return size;
}

void append_metadata(std::string& json, const std::map<std::string, std::string>& metadata) {
  append_json_string(json, kMetadataKey);
  json += ":{";
  for (auto it = metadata.begin(); it != metadata.end(); ++it) {
    if (it != metadata.begin()) json += ',';
    append_json_string(json, it->first);
    json += ':';
    append_json_string(json, it->second);
  }
  json += '}';
}

std::string header_json(const std::vector<TensorPlan>& plan, const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) append_metadata(json, metadata);
  uint64_t begin = 0;
  for (const TensorPlan& tensor : plan) {
    uint64_t end = 0;
    if (!add_fits(begin, planned_size(tensor), &end)) {
      fail(ErrorCode::kInvalidArgument, "{}: offsets do not fit 64 bits", tensor.name);
    }
    if (json.size() > 1) json += ',';
    append_json_string(json, tensor.name);
    json += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", to_string(tensor.dtype),
                        fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  json += '}';
  return json;
}

// Spaces after the JSON until the data starts at a multiple of `alignment`.
void pad_header(std::string& json, uint64_t alignment, const std::string& path) {
  const uint64_t data_start = (kLengthBytes + json.size() + alignment - 1) / alignment * alignment;
  json.resize(static_cast<size_t>(data_start - kLengthBytes), ' ');
  if (json.size() > kLargestHeader) {
    fail(ErrorCode::kUnsupported, "{}: a header of {} bytes, readers take at most {}", path, json.size(),
         kLargestHeader);
  }
}

// The 8 length bytes and the padded JSON: all of a shard before its data.
std::string file_head(const std::vector<TensorPlan>& plan, uint64_t data_alignment,
                      const std::map<std::string, std::string>& metadata, const std::string& path) {
  TREFOIL_CHECK(data_alignment >= 8 && data_alignment % 8 == 0);
  check_plan(plan, path);
  std::string json = header_json(plan, metadata);
  pad_header(json, data_alignment, path);
  std::string head(kLengthBytes, '\0');
  const uint64_t length = json.size();
  std::memcpy(head.data(), &length, sizeof length);
  return head + json;
}

uint64_t total_size(const std::vector<TensorPlan>& plan) {
  uint64_t total = 0;
  for (const TensorPlan& tensor : plan) total += planned_size(tensor);
  return total;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t file_size, const std::string& file) {
  TREFOIL_CHECK(file_size >= kLengthBytes && text.size() <= file_size - kLengthBytes);
  if (text.empty() || text.front() != '{') fail(ErrorCode::kCorrupt, "{}: the header does not begin with '{{'", file);
  const JsonDocument json(text, file);
  SafetensorsHeader header;
  header.data_start = kLengthBytes + text.size();
  bool has_metadata = false;
  for (const auto field : json.object(json.root(), "the header")) {
    if (field.key == kMetadataKey) {
      if (has_metadata) fail(ErrorCode::kCorrupt, "{}: {} appears twice", file, kMetadataKey);
      has_metadata = true;
      header.metadata = parse_metadata(json, field.value);
    } else {
      header.tensors.push_back(parse_tensor(json, field.key, field.value));
    }
  }
  sort_by_offset(header.tensors);
  check_no_name_twice(header.tensors, file);
  check_tiling(header.tensors, file_size - header.data_start, file);
  return header;
}

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  const std::string name = file.path().string();
  if (file.size() < kLengthBytes) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes are too few for a safetensors file", name, file.size());
  }
  std::array<std::byte, kLengthBytes> length{};
  file.read_at(0, length);
  const uint64_t header_size = load<uint64_t>(length.data());
  if (header_size > kLargestHeader) {
    fail(ErrorCode::kCorrupt, "{}: a header of {} bytes is claimed, at most {} are allowed", name, header_size,
         kLargestHeader);
  }
  if (header_size > file.size() - kLengthBytes) {
    fail(ErrorCode::kCorrupt, "{}: a header of {} bytes is claimed, the file has {} bytes in all", name, header_size,
         file.size());
  }
  std::string text(static_cast<size_t>(header_size), '\0');
  file.read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
  return parse_safetensors_header(text, file.size(), name);
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorPlan> plan, uint64_t data_alignment,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path), plan_(std::move(plan)) {
  file_.write(file_head(plan_, data_alignment, metadata, path.string()));
}

void SafetensorsWriter::write(std::string_view name, Bytes bytes) {
  while (current_ < plan_.size() && plan_[current_].name != name &&
         written_of_current_ == planned_size(plan_[current_])) {
    ++current_;
    written_of_current_ = 0;
  }
  if (current_ == plan_.size() || plan_[current_].name != name) {
    fail(ErrorCode::kInvalidArgument, "tensor {} is written where {} was planned", name,
         current_ == plan_.size() ? "the end" : plan_[current_].name);
  }
  const uint64_t size = planned_size(plan_[current_]);
  if (bytes.size() > size - written_of_current_) {
    fail(ErrorCode::kInvalidArgument, "tensor {}: {} bytes after {} of {} planned", name, bytes.size(),
         written_of_current_, size);
  }
  file_.write(bytes);
  written_of_current_ += bytes.size();
}

void SafetensorsWriter::commit() {
  for (; current_ < plan_.size(); ++current_, written_of_current_ = 0) {
    const uint64_t size = planned_size(plan_[current_]);
    if (written_of_current_ != size) {
      fail(ErrorCode::kInvalidArgument, "tensor {}: {} of {} bytes were written", plan_[current_].name,
           written_of_current_, size);
    }
  }
  file_.commit();
}

SafetensorsStage::SafetensorsStage(const fs::path& path, std::vector<TensorPlan> plan, uint64_t data_alignment,
                                   const std::map<std::string, std::string>& metadata)
    : head_(file_head(plan, data_alignment, metadata, path.string())), file_(path, head_.size() + total_size(plan)) {
  uint64_t begin = head_.size();
  for (TensorPlan& tensor : plan) {
    const uint64_t size = planned_size(tensor);
    begin_.emplace(std::move(tensor.name), Range{begin, size});
    begin += size;
  }
  std::string found(head_.size(), '\0');
  file_.read_at(0, std::as_writable_bytes(std::span(found)));
  if (found != head_) file_.write_at(0, std::as_bytes(std::span(head_)));
}

const SafetensorsStage::Range& SafetensorsStage::range_of(std::string_view name, uint64_t offset,
                                                          uint64_t count) const {
  const auto at = begin_.find(name);
  if (at == begin_.end()) fail(ErrorCode::kInvalidArgument, "{}: tensor {} was not planned", path().string(), name);
  if (offset > at->second.size || count > at->second.size - offset) {
    fail(ErrorCode::kInvalidArgument, "{}: {} bytes at {} of tensor {}, which has {}", path().string(), count, offset,
         name, at->second.size);
  }
  return at->second;
}

void SafetensorsStage::write(std::string_view name, uint64_t offset, Bytes bytes) {
  file_.write_at(range_of(name, offset, bytes.size()).begin + offset, bytes);
}

void SafetensorsStage::read(std::string_view name, uint64_t offset, MutableBytes out) const {
  file_.read_at(range_of(name, offset, out.size()).begin + offset, out);
}

}  // namespace trefoil
