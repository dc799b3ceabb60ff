// Little-endian loads and stores, overflow-checked size arithmetic, and numbers as people write them ("64GiB").
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "trefoil/size.h"  // parse_size, format_gb, format_gib, format_duration

namespace trefoil {

static_assert(std::endian::native == std::endian::little, "file formats are read in place as little-endian");

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Reads a T from any alignment. The caller guarantees sizeof(T) readable bytes.
template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void store(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// a * b and a + b for sizes that come from a file; false on overflow, *out is then unspecified.
inline bool multiply_fits(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}
inline bool add_fits(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

// 497220 -> "497,220".
std::string format_count(uint64_t value);

inline Bytes as_bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace trefoil
