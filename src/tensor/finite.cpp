#include "tensor/finite.h"

#include <cstring>

namespace trefoil {
namespace {

// `exponent` are the bits that are all ones in an infinity or NaN.
template <typename Word>
std::optional<int64_t> first_with_exponent(Bytes data, Word exponent) {
  const size_t count = data.size() / sizeof(Word);
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, data.data() + i * sizeof(Word), sizeof(Word));
    if ((word & exponent) == exponent) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

}  // namespace

bool is_floating(DType dtype) {
  switch (dtype) {
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
      return true;
    default:
      return false;
  }
}

std::optional<int64_t> first_non_finite(DType dtype, Bytes data) {
  switch (dtype) {
    case DType::kBF16:
      return first_with_exponent<uint16_t>(data, 0x7F80);
    case DType::kF16:
      return first_with_exponent<uint16_t>(data, 0x7C00);
    case DType::kF32:
      return first_with_exponent<uint32_t>(data, 0x7F800000u);
    case DType::kF64:
      return first_with_exponent<uint64_t>(data, 0x7FF0000000000000u);
    case DType::kF8E5M2:
      return first_with_exponent<uint8_t>(data, 0x7C);
    case DType::kF8E4M3:  // no infinities; the one NaN is all ones
      return first_with_exponent<uint8_t>(data, 0x7F);
    default:
      return std::nullopt;
  }
}

}  // namespace trefoil
