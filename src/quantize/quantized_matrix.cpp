#include "quantize/quantized_matrix.h"

#include "tensor/packed_int.h"

namespace trefoil {

std::vector<float> dequantize(const QuantizedMatrix& matrix) {
  std::vector<float> weight(matrix.codes.size());
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t col = 0; col < matrix.cols; ++col) {
      const auto at = static_cast<size_t>(row * matrix.cols + col);
      weight[at] = bf16_to_f32(dequantize_bf16(matrix.codes[at], matrix.scale_at(row, col)));
    }
  }
  return weight;
}

}  // namespace trefoil
