// A second way from stored bytes to bf16 weights, written to have nothing in common with src/tensor and
// src/checkpoint/linear_storage: bit by bit, and the product of code and scale in integers. Slow; only verify() uses
// it.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "eval/verify_experts.h"

namespace trefoil {

struct SlowRow {
  std::span<const std::byte> packed;  // the row of weight_packed
  std::span<const std::byte> scale;   // the row of weight_scale
};

// Stored codes of one row as unsigned numbers: u = q + 2^(bits-1) for integers, the nibble for MXFP4. codes:
// [in_features].
void slow_codes(const StoredAs& storage, const SlowRow& row, std::span<uint8_t> codes);

// The row as bf16 bits from its codes. out: [in_features]. Non-finite scales give non-finite values.
void slow_decode(const StoredAs& storage, const SlowRow& row, std::span<const uint8_t> codes, std::span<uint16_t> out);

// bf16(q * scale), nearest-even, for |q| <= 128, in integer arithmetic.
uint16_t slow_product(int q, uint16_t scale_bf16);

}  // namespace trefoil
