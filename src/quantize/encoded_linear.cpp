#include "quantize/encoded_linear.h"

#include <span>

namespace trefoil {
namespace {

template <typename T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

EncodedLinear encode(const QuantizedMatrix& matrix, PackedLayout layout) {
  const auto words = static_cast<size_t>(packed_words(matrix.num_bits, matrix.cols, layout));
  const auto rows = static_cast<size_t>(matrix.rows);
  const auto cols = static_cast<size_t>(matrix.cols);
  std::vector<uint32_t> packed(rows * words);
  for (size_t row = 0; row < rows; ++row) {
    pack_row(matrix.num_bits, layout, std::span(matrix.codes).subspan(row * cols, cols),
             std::span(packed).subspan(row * words, words));
  }
  const int64_t shape[2] = {matrix.rows, matrix.cols};
  return {bytes_of(std::span<const uint32_t>(packed)), bytes_of(std::span<const uint16_t>(matrix.scale)),
          bytes_of(std::span<const int64_t>(shape))};
}

}  // namespace trefoil
