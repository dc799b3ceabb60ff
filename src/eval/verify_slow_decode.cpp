#include "eval/verify_slow_decode.h"

#include <bit>
#include <cmath>

namespace trefoil {
namespace {

// A bf16 number is (-1)^sign * significand * 2^(exponent - kBias): 8 significand bits, exponent field 0 meaning 1.
constexpr int kMantissaBits = 7;
constexpr uint32_t kInfinity = 0x7F80;

int bit_at(std::span<const std::byte> bytes, size_t bit) {
  return std::to_integer<int>(bytes[bit / 8] >> (bit % 8)) & 1;
}

// Where bit `j` of code `k` lies in its row. Words are little-endian, so bit t of word w is bit 32w + t of the bytes.
size_t bit_position(const StoredAs& storage, size_t k, size_t j) {
  const auto bits = static_cast<size_t>(storage.num_bits);
  if (storage.format == LinearFormat::kMxfp4 || storage.layout == PackedLayout::kDense) return bits * k + j;
  const size_t codes_per_word = 32 / bits;
  return 32 * (k / codes_per_word) + bits * (k % codes_per_word) + j;
}

// E2M1 in halves: 0, 1, 2, 3, 4, 6, 8, 12.
int e2m1_halves(int code) {
  const int exponent = (code >> 1) & 3;
  const int mantissa = code & 1;
  return exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1);
}

// (-1)^(code >> 3) * halves / 2 * 2^(scale - 127). Exact in bf16 or infinite; byte 255 is NaN.
uint16_t slow_mxfp4(int code, int scale) {
  if (scale == 255) return 0x7FC0;
  const double value = std::ldexp(static_cast<double>(e2m1_halves(code & 7)), scale - 128);
  const auto magnitude = std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16;
  return static_cast<uint16_t>(((code >> 3) << 15) | static_cast<int>(magnitude));
}

}  // namespace

uint16_t slow_product(int q, uint16_t scale_bf16) {
  const auto sign = static_cast<uint32_t>((q < 0) != (scale_bf16 >> 15 != 0)) << 15;
  const uint32_t field = (scale_bf16 >> kMantissaBits) & 0xFF;
  const uint32_t mantissa = scale_bf16 & 0x7F;
  const auto factor = static_cast<uint32_t>(q < 0 ? -q : q);
  if (field == 0xFF) return mantissa != 0 || factor == 0 ? 0x7FC0 : static_cast<uint16_t>(sign | kInfinity);
  uint32_t significand = (field == 0 ? mantissa : mantissa | 0x80) * factor;
  uint32_t exponent = field == 0 ? 1 : field;
  if (significand == 0) return static_cast<uint16_t>(sign);

  // A subnormal scale may give a normal product: nothing to shift, the leading bit says so below.
  uint32_t lost = 0;  // bits shifted out, as a fraction of 2^num_lost
  uint32_t num_lost = 0;
  while (significand >> (kMantissaBits + 1) != 0) {
    lost |= (significand & 1) << num_lost++;
    significand >>= 1;
    ++exponent;
  }
  const uint32_t half = num_lost == 0 ? 1 : 1u << (num_lost - 1);
  if (lost > half || (lost == half && (significand & 1) != 0)) ++significand;
  if (significand >> (kMantissaBits + 1) != 0) {
    significand >>= 1;
    ++exponent;
  }
  if (significand < 0x80) return static_cast<uint16_t>(sign | significand);  // subnormal: exponent is 1 here
  if (exponent >= 0xFF) return static_cast<uint16_t>(sign | kInfinity);
  return static_cast<uint16_t>(sign | exponent << kMantissaBits | (significand & 0x7F));
}

void slow_codes(const StoredAs& storage, const SlowRow& row, std::span<uint8_t> codes) {
  for (size_t k = 0; k < codes.size(); ++k) {
    int code = 0;
    for (size_t j = 0; j < static_cast<size_t>(storage.num_bits); ++j) {
      code |= bit_at(row.packed, bit_position(storage, k, j)) << j;
    }
    codes[k] = static_cast<uint8_t>(code);
  }
}

void slow_decode(const StoredAs& storage, const SlowRow& row, std::span<const uint8_t> codes, std::span<uint16_t> out) {
  const auto group_size = static_cast<size_t>(storage.group_size);
  for (size_t k = 0; k < codes.size(); ++k) {
    const size_t group = k / group_size;
    if (storage.format == LinearFormat::kMxfp4) {
      out[k] = slow_mxfp4(codes[k], std::to_integer<int>(row.scale[group]));
    } else {
      const int scale = std::to_integer<int>(row.scale[2 * group]) | std::to_integer<int>(row.scale[2 * group + 1])
                                                                         << 8;
      out[k] = slow_product(static_cast<int>(codes[k]) - (1 << (storage.num_bits - 1)), static_cast<uint16_t>(scale));
    }
  }
}

}  // namespace trefoil
