// Element types as safetensors spells them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trefoil {

enum class DType { kBool, kU8, kI8, kF8E5M2, kF8E4M3, kI16, kU16, kF16, kBF16, kI32, kU32, kF32, kF64, kI64, kU64 };

// Bytes of one element: 1, 2, 4 or 8.
int64_t element_size(DType dtype);
// "BF16", "U8", ... as written in a safetensors header.
std::string_view to_string(DType dtype);
// The inverse of to_string; nothing for an unknown name.
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace trefoil
