// Signed integers of 2, 3, 4 or 8 bits packed along the input dimension into 32-bit words, the way compressed-tensors
// "pack-quantized" stores them, and their dequantization. docs/formats.md, "pack-quantized".
//
// The stored code is u = q + 2^(bits-1), q in [-2^(bits-1), 2^(bits-1) - 1]. Two layouts share one format name:
//   padded (compressed-tensors 0.17.x): floor(32/bits) codes a word, lowest bits first, unused bits 0;
//   dense  (0.18 and later): a gap-free little-endian bit stream per row, element k at bits [bits*k, bits*(k+1)).
// They are the same bytes for 2, 4 and 8 bits. A row never shares a word with the next row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace trefoil {

enum class PackedLayout { kPadded, kDense };
const char* to_string(PackedLayout layout);

// Words of one row of `cols` codes. bits in {2, 3, 4, 8}.
int64_t packed_words(int bits, int64_t cols, PackedLayout layout);

// The layout in which a row of `cols` codes takes `words` words; nothing when neither fits. When both do (2, 4, 8 bits,
// or a few narrow 3-bit rows) the answer is kDense.
std::optional<PackedLayout> detect_layout(int bits, int64_t cols, int64_t words);

// q: [cols] in range for `bits`; words: [packed_words(...)], written whole.
void pack_row(int bits, PackedLayout layout, std::span<const int8_t> q, std::span<uint32_t> words);

// The inverse. Bits outside the codes are ignored.
void unpack_row(int bits, PackedLayout layout, std::span<const uint32_t> words, std::span<int8_t> q);

// True when every bit that holds no code is zero, as every known writer leaves them.
bool pad_bits_are_zero(int bits, PackedLayout layout, std::span<const uint32_t> words, int64_t cols);

// One element as the reference computes it: bf16(q) * scale in bf16, nearest-even. Returns bf16 bits; q = 0 under a
// negative scale gives -0 (0x8000).
uint16_t dequantize_bf16(int q, uint16_t scale_bf16);

}  // namespace trefoil
