// What the solver produces for one Linear: integer codes and bf16 group scales, ready to be packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/bf16.h"

namespace trefoil {

struct QuantizedMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t group_size = 0;
  int num_bits = 3;
  std::vector<int8_t> codes;    // [rows, cols], in [-2^(bits-1), 2^(bits-1) - 1], original column order
  std::vector<uint16_t> scale;  // bf16 [rows, cols / group_size]; never zero, never non-finite; may be negative

  uint16_t scale_at(int64_t row, int64_t col) const {
    return scale[static_cast<size_t>(row * (cols / group_size) + col / group_size)];
  }
};

// The weights a reader of the checkpoint will see: bf16(q) * scale rounded to bf16, as f32, [rows, cols].
std::vector<float> dequantize(const QuantizedMatrix& matrix);

}  // namespace trefoil
