// decode_linear() and decode_stored() of linear_storage.h: every storage of a Linear turned into f32, row by row.
#include <algorithm>
#include <cmath>
#include <cstring>
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

// Bytes of one row.
uint64_t row_bytes(const TensorRef& tensor) {
  return tensor.info.size() / static_cast<uint64_t>(tensor.info.shape[0]);
}

// Consecutive rows of a matrix as Ts, in place where the bytes are aligned for T, else copied a row at a time:
// safetensors promises no alignment.
template <typename T>
class RowReader {
 public:
  // `bytes` begin with row `first_row` of the tensor.
  RowReader(const TensorRef& tensor, Bytes bytes, int64_t first_row, int64_t row_begin)
      : rest_(bytes.subspan(static_cast<size_t>(row_begin - first_row) * row_bytes(tensor))),
        row_bytes_(row_bytes(tensor)) {}

  std::span<const T> next() {
    const Bytes row = rest_.first(row_bytes_);
    rest_ = rest_.subspan(row_bytes_);
    const size_t cols = row_bytes_ / sizeof(T);
    if (reinterpret_cast<uintptr_t>(row.data()) % alignof(T) == 0)
      return {reinterpret_cast<const T*>(row.data()), cols};
    copy_.resize(cols);
    std::memcpy(copy_.data(), row.data(), row_bytes_);
    return copy_;
  }

 private:
  Bytes rest_;
  size_t row_bytes_;
  std::vector<T> copy_;
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
  FloatRows(const TensorRef& tensor, Bytes bytes, int64_t first_row, int64_t row_begin)
      : dtype_(tensor.info.dtype), row_(static_cast<size_t>(tensor.info.shape[1])) {
    if (dtype_ == DType::kF32) {
      wide_.emplace(tensor, bytes, first_row, row_begin);
    } else {
      narrow_.emplace(tensor, bytes, first_row, row_begin);
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

void decode_plain(const StoredMatrix& matrix, int64_t row_begin, int64_t row_end, std::span<float> out) {
  const StoredLinear& linear = *matrix.linear;
  FloatRows rows(*linear.weight, matrix.weight, matrix.first_row, row_begin);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const std::span<const float> values = rows.next();
    require_finite(values, *linear.weight, row);
    std::copy(values.begin(), values.end(), row_of(out, row - row_begin, linear.in_features).begin());
  }
}

void decode_mxfp4(const StoredMatrix& matrix, int64_t row_begin, int64_t row_end, std::span<float> out) {
  const StoredLinear& linear = *matrix.linear;
  RowReader<uint8_t> packed(*linear.packed, matrix.packed, matrix.first_row, row_begin);
  RowReader<uint8_t> scale(*linear.scale, matrix.scale, matrix.first_row, row_begin);
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

void decode_packed_int(const StoredMatrix& matrix, int64_t row_begin, int64_t row_end, std::span<float> out) {
  const StoredLinear& linear = *matrix.linear;
  RowReader<uint32_t> packed(*linear.packed, matrix.packed, matrix.first_row, row_begin);
  FloatRows scales(*linear.scale, matrix.scale, matrix.first_row, row_begin);
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

// Rows [row_begin, row_end) of a tensor into `memory`; nothing for an absent tensor.
Bytes read_rows(const Checkpoint& checkpoint, const TensorRef* tensor, int64_t row_begin, int64_t row_end,
                std::vector<std::byte>& memory) {
  if (tensor == nullptr) return {};
  memory.resize(static_cast<size_t>(row_end - row_begin) * row_bytes(*tensor));
  checkpoint.read(*tensor, static_cast<uint64_t>(row_begin) * row_bytes(*tensor), memory);
  return memory;
}

bool has_rows(const TensorRef* tensor, Bytes bytes, int64_t rows) {
  return tensor == nullptr || bytes.size() >= static_cast<uint64_t>(rows) * row_bytes(*tensor);
}

}  // namespace

void decode_stored(const StoredMatrix& matrix, int64_t row_begin, int64_t row_end, std::span<float> out) {
  const StoredLinear& linear = *matrix.linear;
  TREFOIL_CHECK(matrix.first_row <= row_begin && row_begin <= row_end && row_end <= linear.out_features);
  TREFOIL_CHECK(static_cast<int64_t>(out.size()) == (row_end - row_begin) * linear.in_features);
  const int64_t rows = row_end - matrix.first_row;
  TREFOIL_CHECK(has_rows(linear.weight, matrix.weight, rows) && has_rows(linear.packed, matrix.packed, rows) &&
                has_rows(linear.scale, matrix.scale, rows));
  switch (linear.format) {
    case LinearFormat::kPlain:
      return decode_plain(matrix, row_begin, row_end, out);
    case LinearFormat::kMxfp4:
      return decode_mxfp4(matrix, row_begin, row_end, out);
    case LinearFormat::kPackedInt:
      return decode_packed_int(matrix, row_begin, row_end, out);
  }
}

void decode_linear(const Checkpoint& checkpoint, const StoredLinear& linear, int64_t row_begin, int64_t row_end,
                   std::span<float> out) {
  TREFOIL_CHECK(0 <= row_begin && row_begin <= row_end && row_end <= linear.out_features);
  TREFOIL_CHECK(static_cast<int64_t>(out.size()) == (row_end - row_begin) * linear.in_features);
  const TensorRef& largest = linear.weight != nullptr ? *linear.weight : *linear.packed;
  const int64_t rows_at_a_time =
      std::max<int64_t>(1, kBytesAtATime / std::max<int64_t>(1, static_cast<int64_t>(row_bytes(largest))));
  std::vector<std::byte> weight, packed, scale;
  for (int64_t begin = row_begin; begin < row_end; begin += rows_at_a_time) {
    const int64_t end = std::min(row_end, begin + rows_at_a_time);
    const StoredMatrix block = {.linear = &linear,
                                .first_row = begin,
                                .weight = read_rows(checkpoint, linear.weight, begin, end, weight),
                                .packed = read_rows(checkpoint, linear.packed, begin, end, packed),
                                .scale = read_rows(checkpoint, linear.scale, begin, end, scale)};
    decode_stored(block, begin, end,
                  out.subspan(static_cast<size_t>((begin - row_begin) * linear.in_features),
                              static_cast<size_t>((end - begin) * linear.in_features)));
  }
}

void read_linear_ahead(const Checkpoint& checkpoint, const StoredLinear& linear) {
  for (const TensorRef* tensor : {linear.weight, linear.packed, linear.scale}) {
    if (tensor != nullptr) checkpoint.read_ahead(*tensor);
  }
}

}  // namespace trefoil
