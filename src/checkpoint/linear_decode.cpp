// decode_linear() of linear_storage.h: every storage of a Linear turned into f32, row by row.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/linear_storage.h"
#include "tensor/bf16.h"
#include "tensor/float16.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

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

void read_linear_ahead(const Checkpoint& checkpoint, const StoredLinear& linear) {
  for (const TensorRef* tensor : {linear.weight, linear.packed, linear.scale}) {
    if (tensor != nullptr) checkpoint.read_ahead(*tensor);
  }
}

}  // namespace trefoil
