#include "checkpoint/linear_storage.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "tensor/bf16.h"
#include "tensor/float16.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

constexpr int kSupportedBits[] = {2, 3, 4, 8};
// Companions that this file understands. Whatever else begins with "weight" changes the numbers and is refused.
constexpr std::string_view kUnderstood[] = {".weight", ".weight_packed", ".weight_scale", ".weight_shape"};
// Prefixes of tensors that say how a Linear computes: weights, and the quantization of its inputs and outputs.
constexpr std::string_view kMeaningful[] = {".weight", ".input_", ".output_"};

bool is_float(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

// "shard-name: tensor: BF16 [3, 4]", the start of every message about a tensor.
std::string describe(const Checkpoint& checkpoint, const TensorRef& tensor) {
  return fmt::format("{}: {}: {} {}", checkpoint.shards()[tensor.shard], tensor.info.name, to_string(tensor.info.dtype),
                     to_string(tensor.info.shape));
}

// ---- finding ----

void refuse_unknown_companions(const Checkpoint& checkpoint, const std::string& module) {
  const std::vector<TensorRef>& all = checkpoint.tensors();
  for (const std::string_view kind : kMeaningful) {
    const std::string prefix = module + std::string(kind);
    auto it = std::lower_bound(all.begin(), all.end(), prefix, [](const TensorRef& tensor, const std::string& name) {
      return tensor.info.name < name;
    });
    for (; it != all.end() && it->info.name.starts_with(prefix); ++it) {
      const std::string_view suffix = std::string_view(it->info.name).substr(module.size());
      if (std::find(std::begin(kUnderstood), std::end(kUnderstood), suffix) != std::end(kUnderstood)) continue;
      fail(ErrorCode::kUnsupported, "{}: nothing here knows how {} changes this Linear, and it is not ignored",
           describe(checkpoint, *it), suffix.substr(1));
    }
  }
}

void require_matrix(const Checkpoint& checkpoint, const TensorRef& tensor) {
  const Shape& shape = tensor.info.shape;
  if (shape.size() != 2) {
    fail(ErrorCode::kUnsupported, "{}: a Linear's tensor has two dimensions", describe(checkpoint, tensor));
  }
  if (shape[0] == 0 || shape[1] == 0) fail(ErrorCode::kCorrupt, "{}: is empty", describe(checkpoint, tensor));
}

void require_shape(const Checkpoint& checkpoint, const TensorRef& tensor, const Shape& expected) {
  if (tensor.info.shape != expected) {
    fail(ErrorCode::kCorrupt, "{}: expected {}", describe(checkpoint, tensor), to_string(expected));
  }
}

// ---- weight_shape ----

// The (out, in) that weight_shape holds.
std::array<int64_t, 2> read_weight_shape(const Checkpoint& checkpoint, const TensorRef& tensor) {
  if (tensor.info.dtype != DType::kI64 || tensor.info.shape != Shape{2}) {
    fail(ErrorCode::kCorrupt, "{}: expected I64 [2]", describe(checkpoint, tensor));
  }
  std::array<int64_t, 2> shape{};
  checkpoint.read(tensor, 0, std::as_writable_bytes(std::span(shape)));
  return shape;
}

void check_weight_shape(const Checkpoint& checkpoint, const TensorRef& tensor, int64_t out, int64_t in) {
  const std::array<int64_t, 2> stored = read_weight_shape(checkpoint, tensor);
  if (stored[0] != out || stored[1] != in) {
    fail(ErrorCode::kCorrupt, "{}: holds ({}, {}), the other tensors say ({}, {})", describe(checkpoint, tensor),
         stored[0], stored[1], out, in);
  }
}

// ---- the three formats ----

void resolve_plain(const Checkpoint& checkpoint, StoredLinear& linear) {
  const TensorRef& weight = *linear.weight;
  require_matrix(checkpoint, weight);
  if (!is_float(weight.info.dtype)) {
    fail(ErrorCode::kUnsupported, "{}: a plain weight is BF16, F16 or F32", describe(checkpoint, weight));
  }
  for (const TensorRef* companion : {linear.packed, linear.scale, linear.shape}) {
    if (companion != nullptr) {
      fail(ErrorCode::kCorrupt, "{}: stands beside the plain {}", describe(checkpoint, *companion), weight.info.name);
    }
  }
  linear.format = LinearFormat::kPlain;
  linear.out_features = weight.info.shape[0];
  linear.in_features = weight.info.shape[1];
  linear.num_bits = static_cast<int>(8 * element_size(weight.info.dtype));
}

void resolve_mxfp4(const Checkpoint& checkpoint, StoredLinear& linear) {
  const TensorRef& packed = *linear.packed;
  if (linear.scale->info.dtype != DType::kU8) {
    fail(ErrorCode::kCorrupt, "{}: beside a U8 weight_packed (MXFP4) a U8 scale is expected",
         describe(checkpoint, *linear.scale));
  }
  const int64_t out = packed.info.shape[0];
  const int64_t in = 2 * packed.info.shape[1];
  if (in % kMxfp4GroupSize != 0) {
    fail(ErrorCode::kCorrupt, "{}: {} columns are not a multiple of {}", describe(checkpoint, packed), in,
         kMxfp4GroupSize);
  }
  require_shape(checkpoint, *linear.scale, {out, in / kMxfp4GroupSize});
  if (linear.shape != nullptr) check_weight_shape(checkpoint, *linear.shape, out, in);
  linear.format = LinearFormat::kMxfp4;
  linear.out_features = out;
  linear.in_features = in;
  linear.group_size = kMxfp4GroupSize;
  linear.num_bits = 4;
}

// The width of a packed row says how wide the codes are; only a few rows narrower than a group leave a choice.
int find_num_bits(const Checkpoint& checkpoint, const TensorRef& packed, int64_t in, int hint) {
  const int64_t words = packed.info.shape[1];
  int found = 0;
  int num_found = 0;
  for (const int bits : kSupportedBits) {
    if (!detect_layout(bits, in, words)) continue;
    if (bits == hint) return bits;
    found = bits;
    ++num_found;
  }
  if (num_found == 0) {
    fail(ErrorCode::kCorrupt, "{}: {} words hold {} codes of none of 2, 3, 4 and 8 bits", describe(checkpoint, packed),
         words, in);
  }
  if (hint != 0) {
    fail(ErrorCode::kCorrupt, "{}: {} words for {} columns are not {}-bit codes as the config says",
         describe(checkpoint, packed), words, in, hint);
  }
  if (num_found > 1) {
    fail(ErrorCode::kUnsupported, "{}: {} words for {} columns fit several bit widths and the config names none",
         describe(checkpoint, packed), words, in);
  }
  return found;
}

// Where both layouts take the same number of words and yet differ (3 bits, 11 to 20 columns and the like), nothing in
// the checkpoint tells them apart.
PackedLayout find_layout(const Checkpoint& checkpoint, const TensorRef& packed, int bits, int64_t in) {
  constexpr int64_t kCodesOfOneWord = 10;  // up to here the two 3-bit layouts are the same bytes
  const int64_t words = packed.info.shape[1];
  const bool both_fit =
      words == packed_words(bits, in, PackedLayout::kPadded) && words == packed_words(bits, in, PackedLayout::kDense);
  if (bits == 3 && both_fit && in > kCodesOfOneWord) {
    fail(ErrorCode::kUnsupported, "{}: {} columns of 3 bits are too few to tell the padded layout from the dense one",
         describe(checkpoint, packed), in);
  }
  return *detect_layout(bits, in, words);
}

void resolve_packed_int(const Checkpoint& checkpoint, StoredLinear& linear, int num_bits_hint) {
  const TensorRef& packed = *linear.packed;
  const TensorRef& scale = *linear.scale;
  if (linear.shape == nullptr) {
    fail(ErrorCode::kCorrupt, "{}: there is no {}.weight_shape", describe(checkpoint, packed), linear.module);
  }
  if (!is_float(scale.info.dtype)) {
    fail(ErrorCode::kCorrupt, "{}: beside an I32 weight_packed a BF16, F16 or F32 scale is expected",
         describe(checkpoint, scale));
  }
  const auto [out, in] = read_weight_shape(checkpoint, *linear.shape);
  if (out != packed.info.shape[0] || in <= 0) {
    fail(ErrorCode::kCorrupt, "{}: holds ({}, {}), {} has {} rows", describe(checkpoint, *linear.shape), out, in,
         packed.info.name, packed.info.shape[0]);
  }
  require_matrix(checkpoint, scale);
  const int64_t groups = scale.info.shape[1];
  if (scale.info.shape[0] != out || in % groups != 0) {
    fail(ErrorCode::kCorrupt, "{}: expected {} rows and a number of groups that divides {}",
         describe(checkpoint, scale), out, in);
  }
  linear.format = LinearFormat::kPackedInt;
  linear.out_features = out;
  linear.in_features = in;
  linear.group_size = in / groups;
  linear.num_bits = find_num_bits(checkpoint, packed, in, num_bits_hint);
  linear.layout = find_layout(checkpoint, packed, linear.num_bits, in);
}

void resolve_packed(const Checkpoint& checkpoint, StoredLinear& linear, int num_bits_hint) {
  require_matrix(checkpoint, *linear.packed);
  if (linear.scale == nullptr) {
    fail(ErrorCode::kCorrupt, "{}: there is no {}.weight_scale", describe(checkpoint, *linear.packed), linear.module);
  }
  switch (linear.packed->info.dtype) {
    case DType::kU8:
      return resolve_mxfp4(checkpoint, linear);
    case DType::kI32:
      return resolve_packed_int(checkpoint, linear, num_bits_hint);
    default:
      fail(ErrorCode::kUnsupported, "{}: a packed weight is U8 (MXFP4) or I32 (packed integers)",
           describe(checkpoint, *linear.packed));
  }
}

// ---- decoding ----

constexpr int64_t kBytesAtATime = int64_t{1} << 20;

// Consecutive rows of a matrix as Ts, copied to aligned memory a block at a time: safetensors promises no alignment.
template <typename T>
class RowReader {
 public:
  RowReader(const Checkpoint& checkpoint, const TensorRef& tensor, int64_t row_begin, int64_t row_end)
      : checkpoint_(checkpoint),
        tensor_(tensor),
        cols_(tensor.info.shape[1]),
        next_(row_begin),
        end_(row_end),
        rows_at_a_time_(std::max<int64_t>(1, kBytesAtATime / (cols_ * static_cast<int64_t>(sizeof(T))))) {}

  std::span<const T> next() {
    if (position_ == loaded_) load();
    return std::span<const T>(block_).subspan(static_cast<size_t>(position_++ * cols_), static_cast<size_t>(cols_));
  }

 private:
  void load() {
    loaded_ = std::min(rows_at_a_time_, end_ - next_);
    block_.resize(static_cast<size_t>(loaded_ * cols_));
    checkpoint_.read(tensor_, static_cast<uint64_t>(next_ * cols_) * sizeof(T),
                     std::as_writable_bytes(std::span(block_)));
    next_ += loaded_;
    position_ = 0;
  }

  const Checkpoint& checkpoint_;
  const TensorRef& tensor_;
  int64_t cols_;
  int64_t next_;
  int64_t end_;
  int64_t rows_at_a_time_;
  std::vector<T> block_;
  int64_t loaded_ = 0;
  int64_t position_ = 0;
};

[[noreturn]] void fail_row(const TensorRef& tensor, int64_t row, const char* what) {
  fail(ErrorCode::kCorrupt, "{}: row {}: {}", tensor.info.name, row, what);
}

void require_finite(std::span<const float> row, const TensorRef& tensor, int64_t row_idx) {
  if (!std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); })) {
    fail_row(tensor, row_idx, "a value is not finite");
  }
}

std::span<float> row_of(std::span<float> out, int64_t row, int64_t cols) {
  return out.subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
}

float widen(DType dtype, uint16_t bits) {
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

// One matrix of BF16, F16 or F32, row by row as f32.
class FloatRows {
 public:
  FloatRows(const Checkpoint& checkpoint, const TensorRef& tensor, int64_t row_begin, int64_t row_end)
      : dtype_(tensor.info.dtype), row_(static_cast<size_t>(tensor.info.shape[1])) {
    if (dtype_ == DType::kF32) {
      wide_.emplace(checkpoint, tensor, row_begin, row_end);
    } else {
      narrow_.emplace(checkpoint, tensor, row_begin, row_end);
    }
  }

  std::span<const float> next() {
    if (wide_) return wide_->next();
    const std::span<const uint16_t> bits = narrow_->next();
    for (size_t i = 0; i < bits.size(); ++i) row_[i] = widen(dtype_, bits[i]);
    return row_;
  }

 private:
  DType dtype_;
  std::optional<RowReader<float>> wide_;
  std::optional<RowReader<uint16_t>> narrow_;
  std::vector<float> row_;
};

void decode_plain(const Checkpoint& checkpoint, const StoredLinear& linear, int64_t row_begin, int64_t row_end,
                  std::span<float> out) {
  FloatRows rows(checkpoint, *linear.weight, row_begin, row_end);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const std::span<const float> values = rows.next();
    require_finite(values, *linear.weight, row);
    std::copy(values.begin(), values.end(), row_of(out, row - row_begin, linear.in_features).begin());
  }
}

void decode_mxfp4(const Checkpoint& checkpoint, const StoredLinear& linear, int64_t row_begin, int64_t row_end,
                  std::span<float> out) {
  RowReader<uint8_t> packed(checkpoint, *linear.packed, row_begin, row_end);
  RowReader<uint8_t> scale(checkpoint, *linear.scale, row_begin, row_end);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const std::span<const uint8_t> codes = packed.next();
    if (!mxfp4_decode_row(codes, scale.next(), row_of(out, row - row_begin, linear.in_features))) {
      fail_row(*linear.scale, row, "a scale byte is 255 or makes a value that is not finite");
    }
  }
}

// value = round(q * scale), rounded to the scale's own dtype. The f32 product is exact for BF16 (8 + 8 significant
// bits) and F16 (8 + 11), so each rounds once, as the reference's multiplication in that dtype does. docs/formats.md.
template <typename Round>
void dequantize_row(std::span<const int8_t> q, std::span<const float> scale, std::span<float> out, Round round) {
  const size_t group_size = q.size() / scale.size();
  for (size_t group = 0; group < scale.size(); ++group) {
    for (size_t k = group * group_size; k < (group + 1) * group_size; ++k) {
      out[k] = round(static_cast<float>(q[k]) * scale[group]);
    }
  }
}

void dequantize_row(DType dtype, std::span<const int8_t> q, std::span<const float> scale, std::span<float> out) {
  switch (dtype) {
    case DType::kBF16:
      return dequantize_row(q, scale, out, round_to_bf16);
    case DType::kF16:
      return dequantize_row(q, scale, out, [](float value) { return f16_to_f32(f32_to_f16(value)); });
    default:
      return dequantize_row(q, scale, out, [](float value) { return value; });
  }
}

void decode_packed_int(const Checkpoint& checkpoint, const StoredLinear& linear, int64_t row_begin, int64_t row_end,
                       std::span<float> out) {
  RowReader<uint32_t> packed(checkpoint, *linear.packed, row_begin, row_end);
  FloatRows scales(checkpoint, *linear.scale, row_begin, row_end);
  std::vector<int8_t> q(static_cast<size_t>(linear.in_features));
  for (int64_t row = row_begin; row < row_end; ++row) {
    unpack_row(linear.num_bits, linear.layout, packed.next(), q);
    const std::span<const float> scale = scales.next();
    require_finite(scale, *linear.scale, row);
    const std::span<float> values = row_of(out, row - row_begin, linear.in_features);
    dequantize_row(linear.scale->info.dtype, q, scale, values);
    require_finite(values, *linear.packed, row);
  }
}

}  // namespace

const char* to_string(LinearFormat format) {
  switch (format) {
    case LinearFormat::kPlain:
      return "plain";
    case LinearFormat::kMxfp4:
      return "mxfp4-pack-quantized";
    case LinearFormat::kPackedInt:
      return "pack-quantized";
  }
  return "unknown";
}

StoredLinear resolve_linear(const Checkpoint& checkpoint, std::string_view module, int num_bits_hint) {
  StoredLinear linear;
  linear.module = module;
  linear.weight = checkpoint.find(linear.module + ".weight");
  linear.packed = checkpoint.find(linear.module + ".weight_packed");
  linear.scale = checkpoint.find(linear.module + ".weight_scale");
  linear.shape = checkpoint.find(linear.module + ".weight_shape");
  if (linear.weight == nullptr && linear.packed == nullptr) {
    fail(ErrorCode::kNotFound, "{}: there is neither {}.weight nor {}.weight_packed", checkpoint.folder().string(),
         module, module);
  }
  refuse_unknown_companions(checkpoint, linear.module);
  if (linear.weight != nullptr) {
    resolve_plain(checkpoint, linear);
  } else {
    resolve_packed(checkpoint, linear, num_bits_hint);
  }
  return linear;
}

void decode_linear(const Checkpoint& checkpoint, const StoredLinear& linear, int64_t row_begin, int64_t row_end,
                   std::span<float> out) {
  TREFOIL_CHECK(0 <= row_begin && row_begin <= row_end && row_end <= linear.out_features);
  TREFOIL_CHECK(static_cast<int64_t>(out.size()) == (row_end - row_begin) * linear.in_features);
  switch (linear.format) {
    case LinearFormat::kPlain:
      return decode_plain(checkpoint, linear, row_begin, row_end, out);
    case LinearFormat::kMxfp4:
      return decode_mxfp4(checkpoint, linear, row_begin, row_end, out);
    case LinearFormat::kPackedInt:
      return decode_packed_int(checkpoint, linear, row_begin, row_end, out);
  }
}

}  // namespace trefoil
