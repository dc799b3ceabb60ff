#include "eval/verify_slow_decode.h"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/bf16.h"
#include "tensor/packed_int.h"

namespace trefoil {
namespace {

// Two independent routes to the same 65,536 x 256 answers, NaN scales apart.
TEST(SlowDecode, ProductEqualsTheFloatRouteForEveryScaleAndCode) {
  for (uint32_t scale = 0; scale < 0x10000; ++scale) {
    if ((scale & 0x7FFF) > 0x7F80) continue;
    for (int q = -128; q < 128; ++q) {
      const uint16_t fast = dequantize_bf16(q, static_cast<uint16_t>(scale));
      if ((fast & 0x7FFF) > 0x7F80) continue;  // 0 * inf
      ASSERT_EQ(slow_product(q, static_cast<uint16_t>(scale)), fast) << "q " << q << " scale " << std::hex << scale;
    }
  }
}

TEST(SlowDecode, ProductKnownAnswers) {
  EXPECT_EQ(slow_product(-3, 0x3F81), 0xC042);
  EXPECT_EQ(slow_product(3, 0x3FDB), 0x40A4);
  EXPECT_EQ(slow_product(0, 0xBF92), 0x8000);
}

// The words of compressed-tensors 0.17.1 and 0.18.0 for -4 -3 -2 -1 0 1 2 3 -4 3 2 1 0 -1.
TEST(SlowDecode, CodesKnownAnswers) {
  const std::vector<uint8_t> expected = {0, 1, 2, 3, 4, 5, 6, 7, 0, 7, 6, 5, 4, 3};
  const auto codes_of = [&](PackedLayout layout, const std::vector<uint32_t>& words) {
    std::vector<uint8_t> codes(expected.size());
    slow_codes({LinearFormat::kPackedInt, 3, layout, 64}, {std::as_bytes(std::span(words)), {}}, codes);
    return codes;
  };
  EXPECT_EQ(codes_of(PackedLayout::kPadded, {0x38fac688, 0x0000072e}), expected);
  EXPECT_EQ(codes_of(PackedLayout::kDense, {0xb8fac688, 0x000001cb}), expected);
}

// 9E 80 7F 13 under scale 127: -4 -0.5 0 -0 -6 6 1.5 0.5.
TEST(SlowDecode, Mxfp4KnownAnswers) {
  const std::vector<uint8_t> packed = {0x9E, 0x80, 0x7F, 0x13};
  const std::vector<uint8_t> scale = {127};
  const StoredAs storage{LinearFormat::kMxfp4, 4, PackedLayout::kDense, 32};
  const SlowRow row{std::as_bytes(std::span(packed)), std::as_bytes(std::span(scale))};
  std::vector<uint8_t> codes(8);
  std::vector<uint16_t> weights(8);
  slow_codes(storage, row, codes);
  slow_decode(storage, row, codes, weights);
  EXPECT_EQ(weights, (std::vector<uint16_t>{0xC080, 0xBF00, 0x0000, 0x8000, 0xC0C0, 0x40C0, 0x3FC0, 0x3F00}));
}

}  // namespace
}  // namespace trefoil
