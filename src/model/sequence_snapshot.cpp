#include "model/sequence_snapshot.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "base/error.h"
#include "base/sha256.h"

namespace trefoil {
namespace {

constexpr std::string_view kMagic = "TREFSEQ\n";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kHashDigits = 64;  // of a SHA-256
constexpr size_t kArrays = 5;         // of a layer: conv_q, conv_k, conv_v, recurrent, kv
constexpr size_t kPieceFloats = size_t{1} << 18;

// How the floats of an array are stored.
enum class Encoding : uint32_t {
  kF32 = 0,
  kBf16 = 1,  // the upper halves, when every lower half is 0
};

struct FileHead {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t num_layers;
  std::array<char, kHashDigits> fingerprint;
  uint64_t num_ids;
  uint64_t num_logits;
};
static_assert(sizeof(FileHead) == 96);

struct ArrayHead {
  uint64_t count;  // floats
  Encoding encoding;
  uint32_t zero;
};
static_assert(sizeof(ArrayHead) == 16);

uint64_t element_bytes(Encoding encoding) {
  return encoding == Encoding::kBf16 ? 2 : 4;
}

std::array<const std::vector<float>*, kArrays> arrays_of(const LayerState& layer) {
  return {&layer.conv_q, &layer.conv_k, &layer.conv_v, &layer.recurrent, &layer.kv};
}
std::array<std::vector<float>*, kArrays> arrays_of(LayerState& layer) {
  return {&layer.conv_q, &layer.conv_k, &layer.conv_v, &layer.recurrent, &layer.kv};
}
std::array<uint64_t, kArrays> counts_of(const SnapshotShape::Layer& layer, uint64_t num_ids) {
  return {layer.conv, layer.conv, layer.conv, layer.recurrent, layer.kv_row * num_ids};
}

Encoding encoding_of(std::span<const float> values) {
  const bool is_bf16 =
      std::all_of(values.begin(), values.end(), [](float v) { return (std::bit_cast<uint32_t>(v) & 0xFFFF) == 0; });
  return is_bf16 ? Encoding::kBf16 : Encoding::kF32;
}

template <typename T>
Bytes bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// --- writing ---

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const fs::path& path) : file_(path) {}

  void put(Bytes bytes) {
    hash_.update(bytes);
    file_.write(bytes);
  }

  void put_floats(std::span<const float> values, Encoding encoding) {
    if (encoding == Encoding::kF32) return put(std::as_bytes(values));
    std::vector<uint16_t> piece;
    for (size_t begin = 0; begin < values.size(); begin += kPieceFloats) {
      piece.clear();
      for (const float value : values.subspan(begin, std::min(kPieceFloats, values.size() - begin))) {
        piece.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
      }
      put(std::as_bytes(std::span(piece)));
    }
  }

  void finish() {
    file_.write(hash_.hex());
    file_.commit();
  }

 private:
  AtomicFile file_;
  Sha256 hash_;
};

// --- reading ---

class SnapshotReader {
 public:
  SnapshotReader(const SnapshotShape& shape, const SnapshotSource& source) : shape_(shape), source_(source) {}

  SequenceSnapshot run() {
    const FileHead head = read_head();
    const std::vector<ArrayHead> arrays = read_array_heads(head.num_ids);
    check_size(head, arrays);
    SequenceSnapshot snapshot;
    snapshot.ids.resize(head.num_ids);
    take(std::as_writable_bytes(std::span(snapshot.ids)));
    snapshot.logits.resize(head.num_logits);
    take(std::as_writable_bytes(std::span(snapshot.logits)));
    snapshot.state.position = static_cast<int64_t>(head.num_ids);
    snapshot.state.layers.resize(shape_.layers.size());
    auto array = arrays.begin();
    for (LayerState& layer : snapshot.state.layers) {
      for (std::vector<float>* values : arrays_of(layer)) take_floats(*array++, values);
    }
    check_hash();
    check_ids(snapshot.ids);
    return snapshot;
  }

 private:
  FileHead read_head() {
    if (source_.size < sizeof(FileHead) + kHashDigits) {
      fail(ErrorCode::kCorrupt, "{}: {} bytes are no sequence state, the least is {}", source_.name, source_.size,
           sizeof(FileHead) + kHashDigits);
    }
    FileHead head;
    take(std::as_writable_bytes(std::span(&head, 1)));
    if (std::string_view(head.magic.data(), head.magic.size()) != kMagic)
      fail(ErrorCode::kCorrupt, "{}: no sequence state: it does not begin with TREFSEQ", source_.name);
    if (head.version != kVersion) {
      fail(ErrorCode::kUnsupported, "{}: a sequence state of version {}, expected {}", source_.name, head.version,
           kVersion);
    }
    // Before any size, which another model has every right to have.
    const std::string_view fingerprint(head.fingerprint.data(), head.fingerprint.size());
    if (!std::all_of(fingerprint.begin(), fingerprint.end(), is_hex))
      fail(ErrorCode::kCorrupt, "{}: its model's fingerprint is not 64 hexadecimal digits", source_.name);
    if (fingerprint != shape_.fingerprint) {
      fail(ErrorCode::kInvalidArgument, "{}: the state of another model or of other numerics: {}..., this one is {}...",
           source_.name, fingerprint.substr(0, 12), shape_.fingerprint.substr(0, 12));
    }
    if (head.num_layers != shape_.layers.size()) wrong("layers", head.num_layers, fmt::to_string(shape_.layers.size()));
    if (head.num_ids > static_cast<uint64_t>(shape_.max_tokens) || head.num_ids > source_.size / sizeof(int32_t))
      wrong("tokens", head.num_ids, fmt::format("at most {} and what the file has room for", shape_.max_tokens));
    const uint64_t num_logits = head.num_ids == 0 ? 0 : static_cast<uint64_t>(shape_.vocab_size);
    if (head.num_logits != num_logits) wrong("logits", head.num_logits, fmt::to_string(num_logits));
    return head;
  }

  std::vector<ArrayHead> read_array_heads(uint64_t num_ids) {
    std::vector<ArrayHead> heads(kArrays * shape_.layers.size());
    if (source_.size - kHashDigits - offset_ < heads.size() * sizeof(ArrayHead)) cut_off(offset_);
    take(std::as_writable_bytes(std::span(heads)));
    for (size_t i = 0; i < heads.size(); ++i) {
      const ArrayHead& head = heads[i];
      const std::string what = fmt::format("floats in array {} of layer {}", i % kArrays, i / kArrays);
      const uint64_t count = counts_of(shape_.layers[i / kArrays], num_ids)[i % kArrays];
      if (head.count != count) wrong(what, head.count, fmt::to_string(count));
      if (head.encoding != Encoding::kF32 && head.encoding != Encoding::kBf16)
        wrong("as the encoding of the " + what, static_cast<uint64_t>(head.encoding), "0 or 1");
      if (head.zero != 0) wrong("behind the encoding of the " + what, head.zero, "0");
    }
    return heads;
  }

  // Sums cannot overflow: each term is a size of the model, at most times a number of ids that the file bears out.
  void check_size(const FileHead& head, const std::vector<ArrayHead>& arrays) const {
    uint64_t size = offset_ + 4 * head.num_ids + 4 * head.num_logits + kHashDigits;
    for (const ArrayHead& array : arrays) size += array.count * element_bytes(array.encoding);
    if (size != source_.size) wrong("bytes", source_.size, fmt::format("{} by its own counts", size));
  }

  void take(MutableBytes out) {
    source_.read(offset_, out);
    hash_.update(out);
    offset_ += out.size();
  }

  void take_floats(const ArrayHead& head, std::vector<float>* values) {
    values->resize(head.count);
    if (head.encoding == Encoding::kF32) return take(std::as_writable_bytes(std::span(*values)));
    std::vector<uint16_t> piece;
    for (size_t begin = 0; begin < values->size(); begin += kPieceFloats) {
      piece.resize(std::min(kPieceFloats, values->size() - begin));
      take(std::as_writable_bytes(std::span(piece)));
      for (size_t i = 0; i < piece.size(); ++i) {
        (*values)[begin + i] = std::bit_cast<float>(static_cast<uint32_t>(piece[i]) << 16);
      }
    }
  }

  void check_hash() {
    std::string stored(kHashDigits, '\0');
    source_.read(offset_, std::as_writable_bytes(std::span(stored)));
    const std::string found = hash_.hex();
    if (stored == found) return;
    const bool is_text = std::all_of(stored.begin(), stored.end(), is_hex);
    fail(ErrorCode::kCorrupt, "{}: its bytes have the SHA-256 {}..., it says {}...", source_.name, found.substr(0, 12),
         is_text ? stored.substr(0, 12) : "no digits");
  }

  void check_ids(const std::vector<int32_t>& ids) const {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= shape_.vocab_size) {
        fail(ErrorCode::kCorrupt, "{}: token {} is id {}, expected 0 <= id < {}", source_.name, i, ids[i],
             shape_.vocab_size);
      }
    }
  }

  static bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

  [[noreturn]] void wrong(const std::string& what, uint64_t found, const std::string& expected) const {
    fail(ErrorCode::kCorrupt, "{}: {} {}, expected {}", source_.name, found, what, expected);
  }
  [[noreturn]] void cut_off(uint64_t at) const {
    fail(ErrorCode::kCorrupt, "{}: {} bytes, cut off in the table that begins at {}", source_.name, source_.size, at);
  }

  const SnapshotShape& shape_;
  const SnapshotSource& source_;
  uint64_t offset_ = 0;
  Sha256 hash_;
};

}  // namespace

uint64_t state_bytes(const SequenceState& state) {
  uint64_t floats = 0;
  for (const LayerState& layer : state.layers) {
    for (const std::vector<float>* values : arrays_of(layer)) floats += values->size();
  }
  return floats * sizeof(float);
}

uint64_t SequenceSnapshot::bytes() const {
  return state_bytes(state) + logits.size() * sizeof(float) + ids.size() * sizeof(int32_t);
}

SnapshotShape snapshot_shape(const Model& model, std::string fingerprint) {
  const ModelConfig& config = model.config();
  SnapshotShape shape{std::move(fingerprint), config.vocab_size, config.max_position_embeddings, {}};
  const SequenceState fresh = model.new_sequence();
  for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
    const LayerState& layer = fresh.layers[static_cast<size_t>(l)];
    const int64_t kv_row = config.is_kda(l) ? 0 : config.kv_lora_rank + config.qk_rope_head_dim;
    shape.layers.push_back({layer.conv_q.size(), layer.recurrent.size(), static_cast<uint64_t>(kv_row)});
  }
  return shape;
}

void check_snapshot_place(const fs::path& path) {
  const fs::path folder = path.parent_path().empty() ? "." : path.parent_path();
  if (!fs::is_directory(folder)) fail(ErrorCode::kNotFound, "{}: no such folder", folder.string());
  if (!fs::exists(path)) return;
  if (fs::is_regular_file(path)) {
    const InputFile file(path);
    std::string magic(std::min<uint64_t>(kMagic.size(), file.size()), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(magic)));
    if (magic == kMagic) return;
  }
  fail(ErrorCode::kInvalidArgument, "{}: is there and holds something else than a sequence state", path.string());
}

void save_snapshot(const SequenceSnapshot& snapshot, const SnapshotShape& shape, const fs::path& path) {
  check_snapshot_place(path);
  TREFOIL_CHECK(shape.fingerprint.size() == kHashDigits);
  TREFOIL_CHECK(snapshot.state.layers.size() == shape.layers.size());
  FileHead head{
      {}, kVersion, static_cast<uint32_t>(shape.layers.size()), {}, snapshot.ids.size(), snapshot.logits.size()};
  kMagic.copy(head.magic.data(), head.magic.size());
  shape.fingerprint.copy(head.fingerprint.data(), kHashDigits);
  std::vector<ArrayHead> arrays;
  for (const LayerState& layer : snapshot.state.layers) {
    for (const std::vector<float>* values : arrays_of(layer))
      arrays.push_back({values->size(), encoding_of(*values), 0});
  }

  SnapshotWriter writer(path);
  writer.put(bytes_of(head));
  writer.put(std::as_bytes(std::span(arrays)));
  writer.put(std::as_bytes(std::span(snapshot.ids)));
  writer.put(std::as_bytes(std::span(snapshot.logits)));
  auto array = arrays.begin();
  for (const LayerState& layer : snapshot.state.layers) {
    for (const std::vector<float>* values : arrays_of(layer)) writer.put_floats(*values, (array++)->encoding);
  }
  writer.finish();
}

SequenceSnapshot read_snapshot(const SnapshotShape& shape, const SnapshotSource& source) {
  return SnapshotReader(shape, source).run();
}

SequenceSnapshot load_snapshot(const SnapshotShape& shape, const fs::path& path) {
  const InputFile file(path);
  return read_snapshot(
      shape, {path.string(), file.size(), [&](uint64_t offset, MutableBytes out) { file.read_at(offset, out); }});
}

}  // namespace trefoil
