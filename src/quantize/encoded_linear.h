// A solved Linear as the bytes of its three tensors.
#pragma once

#include <cstddef>
#include <vector>

#include "quantize/quantized_matrix.h"
#include "tensor/packed_int.h"

namespace trefoil {

// I32 codes, BF16 scales, I64 (out, in).
struct EncodedLinear {
  std::vector<std::byte> packed, scale, shape;
};
EncodedLinear encode(const QuantizedMatrix& matrix, PackedLayout layout);

}  // namespace trefoil
