// MXFP4 (OCP microscaling, as compressed-tensors "mxfp4-pack-quantized" stores it). docs/formats.md, "MXFP4".
//
//   value(row, col) = e2m1(nibble) * 2^(scale[row, col / 32] - 127)
//   byte j of a row holds column 2j in its low nibble and column 2j+1 in its high nibble
//   nibble: bit 3 sign, bits 0..2 index into {0, 0.5, 1, 1.5, 2, 3, 4, 6}; code 8 is -0
//
// Every decodable value is exact in f32, and in bf16 for every scale that does not overflow it.
#pragma once

#include <cstdint>
#include <span>

namespace trefoil {

constexpr int64_t kMxfp4GroupSize = 32;

// The eight magnitudes of E2M1, by code.
extern const float kE2m1[8];

// 2^(e - 127) for e in [0, 254]; e = 0 is the subnormal 2^-127. e = 255 is NaN in the OCP definition.
float e8m0_to_f32(uint8_t e);

// Decodes one row. packed: [cols / 2], scale: [cols / 32], out: [cols] f32. cols is a multiple of 32.
// Returns false, with `out` unspecified, when the row holds scale byte 255 or a value that is not finite in bf16.
bool mxfp4_decode_row(std::span<const uint8_t> packed, std::span<const uint8_t> scale, std::span<float> out);

// Encodes one row, shapes as above, with the ceil rule: a group's scale is the smallest power of two under which no value
// exceeds the largest magnitude,
//   2^ceil(log2(max|w| / 6)),
// and every value goes to the nearest code, ties to the even one. A group of zeros gets scale byte 0. Values are finite.
void mxfp4_encode_row(std::span<const float> values, std::span<uint8_t> packed, std::span<uint8_t> scale);

}  // namespace trefoil
