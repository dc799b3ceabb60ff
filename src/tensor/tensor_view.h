// A typed, shaped look at bytes that someone else owns. Row-major, no strides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tensor/dtype.h"

namespace trefoil {

using Shape = std::vector<int64_t>;

// "[3072, 56]"
std::string to_string(const Shape& shape);

// The product of the dimensions times element_size; false when a dimension is negative or the product overflows 63 bits.
bool byte_size_of(const Shape& shape, DType dtype, uint64_t* bytes);

struct TensorView {
  DType dtype = DType::kU8;
  Shape shape;
  Bytes data;  // exactly byte_size_of(shape, dtype) bytes; any alignment (safetensors promises none)

  int64_t dim(size_t axis) const { return shape[axis]; }
};

}  // namespace trefoil
