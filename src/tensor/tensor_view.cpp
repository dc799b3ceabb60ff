#include "tensor/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trefoil {

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool byte_size_of(const Shape& shape, DType dtype, uint64_t* bytes) {
  uint64_t product = static_cast<uint64_t>(element_size(dtype));
  for (const int64_t dim : shape) {
    if (dim < 0 || !multiply_fits(product, static_cast<uint64_t>(dim), &product)) return false;
  }
  *bytes = product;
  return product <= static_cast<uint64_t>(INT64_MAX);
}

}  // namespace trefoil
