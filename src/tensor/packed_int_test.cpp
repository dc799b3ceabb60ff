// Known answers were produced by compressed-tensors 0.17.1 (padded) and 0.18.0 (dense); see docs/formats.md.
#include "tensor/packed_int.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "tensor/bf16.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using Words = std::vector<uint32_t>;
using Codes = std::vector<int8_t>;

constexpr int kAllBits[] = {2, 3, 4, 8};
constexpr PackedLayout kBothLayouts[] = {PackedLayout::kPadded, PackedLayout::kDense};

Words pack(int bits, PackedLayout layout, const Codes& q) {
  // Filled with ones: what pack_row does not write would show.
  Words words(static_cast<size_t>(packed_words(bits, static_cast<int64_t>(q.size()), layout)), 0xFFFFFFFFu);
  pack_row(bits, layout, q, words);
  return words;
}

Codes unpack(int bits, PackedLayout layout, const Words& words, int64_t cols) {
  Codes q(static_cast<size_t>(cols), 99);
  unpack_row(bits, layout, words, q);
  return q;
}

// The bit of the row in which bit `b` of element `k` lies, from the definition of each layout.
int64_t bit_position(int bits, PackedLayout layout, int64_t k, int b) {
  if (layout == PackedLayout::kDense) return k * bits + b;
  const int64_t per_word = 32 / bits;
  return k / per_word * 32 + k % per_word * bits + b;
}

// Packs bit by bit: slow, and nothing in common with the code under test.
Words pack_slowly(int bits, PackedLayout layout, const Codes& q) {
  Words words(static_cast<size_t>(packed_words(bits, static_cast<int64_t>(q.size()), layout)), 0);
  for (int64_t k = 0; k < static_cast<int64_t>(q.size()); ++k) {
    const int code = q[static_cast<size_t>(k)] + (1 << (bits - 1));
    for (int b = 0; b < bits; ++b) {
      const int64_t position = bit_position(bits, layout, k, b);
      if ((code >> b) & 1) words[static_cast<size_t>(position / 32)] |= 1u << (position % 32);
    }
  }
  return words;
}

Codes random_codes(int bits, int64_t cols, std::mt19937& random) {
  std::uniform_int_distribution<int> code(-(1 << (bits - 1)), (1 << (bits - 1)) - 1);
  Codes q(static_cast<size_t>(cols));
  for (int8_t& value : q) value = static_cast<int8_t>(code(random));
  return q;
}

struct KnownAnswer {
  const char* what;
  int bits;
  Codes q;
  Words padded;
  Words dense;
};

Codes ramp(int step, int start, int modulus, int count) {
  Codes q;
  for (int i = 0; i < count; ++i) q.push_back(static_cast<int8_t>((step * i + start) % modulus - modulus / 2));
  return q;
}

std::vector<KnownAnswer> known_answers() {
  return {
      {"fourteen mixed values of 3 bits",
       3,
       {-4, -3, -2, -1, 0, 1, 2, 3, -4, 3, 2, 1, 0, -1},
       {0x38fac688, 0x0000072e},
       {0xb8fac688, 0x000001cb}},
      {"a ramp of 32 values of 3 bits",
       3,
       ramp(5, 3, 8, 32),
       {0x03c67543, 0x150f19d5, 0x27543c67, 0x00000031},
       {0x43c67543, 0x7543c675, 0xc67543c6}},
      {"fourteen times 3", 3, Codes(14, 3), {0x3fffffff, 0x00000fff}, {0xffffffff, 0x000003ff}},
      {"a ramp of 4 bits", 4, ramp(5, 3, 16, 16), {0x61c72d83, 0xe94fa50b}, {0x61c72d83, 0xe94fa50b}},
      {"a ramp of 2 bits", 2, ramp(3, 1, 4, 20), {0xb1b1b1b1, 0x000000b1}, {0xb1b1b1b1, 0x000000b1}},
      {"the extremes of 8 bits", 8, {-128, -1, 0, 1, 127}, {0x81807f00, 0x000000ff}, {0x81807f00, 0x000000ff}},
  };
}

TEST(PackRow, GivesTheReferenceBytes) {
  for (const KnownAnswer& known : known_answers()) {
    EXPECT_EQ(pack(known.bits, PackedLayout::kPadded, known.q), known.padded) << known.what;
    EXPECT_EQ(pack(known.bits, PackedLayout::kDense, known.q), known.dense) << known.what;
  }
}

TEST(UnpackRow, ReadsTheReferenceBytes) {
  for (const KnownAnswer& known : known_answers()) {
    const int64_t cols = static_cast<int64_t>(known.q.size());
    EXPECT_EQ(unpack(known.bits, PackedLayout::kPadded, known.padded, cols), known.q) << known.what;
    EXPECT_EQ(unpack(known.bits, PackedLayout::kDense, known.dense, cols), known.q) << known.what;
  }
}

TEST(PackRow, EveryCodeRoundTripsAtEveryPlaceOfAWordCycle) {
  for (const int bits : kAllBits) {
    for (const PackedLayout layout : kBothLayouts) {
      for (int place = 0; place < 40; ++place) {
        for (int q = -(1 << (bits - 1)); q < 1 << (bits - 1); ++q) {
          Codes row(40, 0);
          row[static_cast<size_t>(place)] = static_cast<int8_t>(q);
          ASSERT_EQ(unpack(bits, layout, pack(bits, layout, row), 40), row) << bits << " bits, place " << place;
        }
      }
    }
  }
}

TEST(PackRow, EveryWidthUpTo400MatchesTheDefinition) {
  std::mt19937 random(20260917);
  for (const int bits : kAllBits) {
    for (const PackedLayout layout : kBothLayouts) {
      for (int64_t cols = 1; cols <= 400; ++cols) {
        const Codes q = random_codes(bits, cols, random);
        const Words words = pack(bits, layout, q);
        ASSERT_EQ(words, pack_slowly(bits, layout, q)) << bits << " bits, " << to_string(layout) << ", " << cols;
        ASSERT_EQ(unpack(bits, layout, words, cols), q) << bits << " bits, " << to_string(layout) << ", " << cols;
        ASSERT_TRUE(pad_bits_are_zero(bits, layout, words, cols));
      }
    }
  }
}

TEST(PackRow, BothLayoutsAgreeUnlessCodesStraddleWords) {
  std::mt19937 random(3);
  for (int64_t cols = 1; cols <= 400; ++cols) {
    for (const int bits : {2, 4, 8}) {
      const Codes q = random_codes(bits, cols, random);
      ASSERT_EQ(pack(bits, PackedLayout::kPadded, q), pack(bits, PackedLayout::kDense, q));
    }
  }
}

TEST(PackRow, Elements10And21OfThreeBitsStraddleWords) {
  Codes q(32, -4);  // code 0 everywhere else
  q[10] = 3;        // code 7: two bits end word 0, one begins word 1
  EXPECT_THAT(pack(3, PackedLayout::kDense, q), ElementsAre(0xC0000000u, 0x00000001u, 0u));
  EXPECT_EQ(unpack(3, PackedLayout::kDense, pack(3, PackedLayout::kDense, q), 32), q);
  q[10] = -4;
  q[21] = 3;  // one bit ends word 1, two begin word 2
  EXPECT_THAT(pack(3, PackedLayout::kDense, q), ElementsAre(0u, 0x80000000u, 0x00000003u));
  EXPECT_EQ(unpack(3, PackedLayout::kDense, pack(3, PackedLayout::kDense, q), 32), q);
}

TEST(PackRow, SlotsPastTheEndAreZeroBitsAndNotTheCodeOfZero) {
  EXPECT_THAT(pack(3, PackedLayout::kPadded, Codes(11, 0)), ElementsAre(0x24924924u, 0x00000004u));
  EXPECT_THAT(pack(4, PackedLayout::kPadded, Codes(1, 0)), ElementsAre(0x00000008u));
}

TEST(PackRow, AnEmptyRowTakesNoWords) {
  EXPECT_THAT(pack(3, PackedLayout::kDense, {}), ElementsAre());
  EXPECT_THAT(pack(3, PackedLayout::kPadded, {}), ElementsAre());
}

TEST(UnpackRow, IgnoresBitsOutsideTheCodes) {
  const Words noisy = {0x38fac688u | 0xC0000000u, 0x0000072eu | 0xFFFFF000u};
  EXPECT_EQ(unpack(3, PackedLayout::kPadded, noisy, 14), known_answers()[0].q);
  const Words noisy_tail = {0xb8fac688u, 0x000001cbu | 0xFFFFFC00u};
  EXPECT_EQ(unpack(3, PackedLayout::kDense, noisy_tail, 14), known_answers()[0].q);
}

TEST(PadBits, EverySingleOneIsSeenAndNoCodeBitIsMistakenForOne) {
  for (const int bits : kAllBits) {
    for (const PackedLayout layout : kBothLayouts) {
      for (const int64_t cols : {1, 7, 10, 11, 14, 32, 43}) {
        std::vector<bool> is_code(static_cast<size_t>(packed_words(bits, cols, layout) * 32), false);
        for (int64_t k = 0; k < cols; ++k) {
          for (int b = 0; b < bits; ++b) is_code[static_cast<size_t>(bit_position(bits, layout, k, b))] = true;
        }
        for (size_t bit = 0; bit < is_code.size(); ++bit) {
          Words words(is_code.size() / 32, 0);
          words[bit / 32] = 1u << (bit % 32);
          ASSERT_EQ(pad_bits_are_zero(bits, layout, words, cols), is_code[bit])
              << bits << " bits, " << to_string(layout) << ", " << cols << " columns, bit " << bit;
        }
      }
    }
  }
}

TEST(PackedWords, MatchTheWidthsOfTheReference) {
  struct Row {
    int64_t cols, two, three_padded, three_dense, four, eight;
  };
  for (const Row& row : {Row{3584, 224, 359, 336, 448, 896}, Row{3072, 192, 308, 288, 384, 768},
                         Row{1024, 64, 103, 96, 128, 256}, Row{7168, 448, 717, 672, 896, 1792}}) {
    EXPECT_EQ(packed_words(2, row.cols, PackedLayout::kDense), row.two);
    EXPECT_EQ(packed_words(3, row.cols, PackedLayout::kPadded), row.three_padded);
    EXPECT_EQ(packed_words(3, row.cols, PackedLayout::kDense), row.three_dense);
    EXPECT_EQ(packed_words(4, row.cols, PackedLayout::kPadded), row.four);
    EXPECT_EQ(packed_words(8, row.cols, PackedLayout::kDense), row.eight);
  }
}

TEST(PackedWords, DoNotOverflowForWidthsOnlyAHostileFileHas) {
  EXPECT_EQ(packed_words(8, INT64_MAX, PackedLayout::kDense), INT64_MAX / 4 + 1);
  EXPECT_EQ(packed_words(8, INT64_MAX, PackedLayout::kPadded), INT64_MAX / 4 + 1);
  EXPECT_EQ(packed_words(3, INT64_MAX, PackedLayout::kPadded), INT64_MAX / 10 + 1);
}

TEST(DetectLayout, TellsTheTwoThreeBitLayoutsApartByWidth) {
  EXPECT_EQ(detect_layout(3, 3584, 359), PackedLayout::kPadded);
  EXPECT_EQ(detect_layout(3, 3584, 336), PackedLayout::kDense);
  EXPECT_EQ(detect_layout(3, 3584, 358), std::nullopt);
  EXPECT_EQ(detect_layout(3, 3584, 448), std::nullopt);
  EXPECT_EQ(detect_layout(4, 3584, 448), PackedLayout::kDense);
  EXPECT_EQ(detect_layout(3, 14, 2), PackedLayout::kDense);  // both fit
  EXPECT_EQ(detect_layout(3, 0, 1), std::nullopt);
}

TEST(DetectLayout, WidthsOfThreeBitsCoincideOnlyInNarrowRows) {
  for (int64_t cols = 1; cols <= 4096; ++cols) {
    const bool coincide = packed_words(3, cols, PackedLayout::kPadded) == packed_words(3, cols, PackedLayout::kDense);
    ASSERT_FALSE(coincide && (cols > 150 || cols % 32 == 0)) << cols;
  }
}

TEST(DequantizeBf16, GivesTheReferenceBits) {
  struct Known {
    uint16_t scale;
    std::vector<uint16_t> values;  // of q = -4..3
  };
  for (const Known& known : {Known{0x3f81, {0xc081, 0xc042, 0xc001, 0xbf81, 0x0000, 0x3f81, 0x4001, 0x4042}},
                             Known{0x3fdb, {0xc0db, 0xc0a4, 0xc05b, 0xbfdb, 0x0000, 0x3fdb, 0x405b, 0x40a4}},
                             Known{0x3f5b, {0xc05b, 0xc024, 0xbfdb, 0xbf5b, 0x0000, 0x3f5b, 0x3fdb, 0x4024}},
                             Known{0xbf92, {0x4092, 0x405b, 0x4012, 0x3f92, 0x8000, 0xbf92, 0xc012, 0xc05b}}}) {
    for (int q = -4; q < 4; ++q) {
      EXPECT_EQ(dequantize_bf16(q, known.scale), known.values[static_cast<size_t>(q + 4)]) << known.scale << " * " << q;
    }
  }
}

// One bf16 product of integers: 8-bit mantissa times |q|, rounded to 8 bits, ties to even. No floating point.
uint16_t multiply_exactly(int q, uint16_t scale) {
  uint32_t product = (0x80u | (scale & 0x7Fu)) * static_cast<uint32_t>(std::abs(q));
  int exponent = (scale >> 7) & 0xFF;
  const uint16_t sign = static_cast<uint16_t>((scale & 0x8000u) ^ (q < 0 ? 0x8000u : 0u));
  if (product == 0) return sign;
  uint32_t dropped = 0;
  uint32_t half = 0;
  for (int shift = 0; (product >> shift) >= 0x100u; ++shift, ++exponent) {
    dropped = product & ((2u << shift) - 1u);
    half = 1u << shift;
  }
  uint32_t mantissa = half == 0 ? product : (product - dropped) / (2 * half);
  if (half != 0 && (dropped > half || (dropped == half && (mantissa & 1u) != 0))) ++mantissa;
  if (mantissa == 0x100u) {
    mantissa = 0x80u;
    ++exponent;
  }
  return static_cast<uint16_t>(sign | (exponent << 7) | (mantissa & 0x7Fu));
}

TEST(DequantizeBf16, RoundsOnceToNearestEvenForEveryMantissaAndSign) {
  int inexact_times_three = 0;
  for (uint32_t mantissa = 0; mantissa < 0x80; ++mantissa) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      const uint16_t scale = static_cast<uint16_t>(sign | (120u << 7) | mantissa);
      for (int q = -128; q < 128; ++q)
        ASSERT_EQ(dequantize_bf16(q, scale), multiply_exactly(q, scale)) << scale << " " << q;
      const float exact = 3.0f * bf16_to_f32(scale);
      if (bf16_to_f32(dequantize_bf16(3, scale)) != exact) ++inexact_times_three;
    }
  }
  EXPECT_EQ(inexact_times_three, 170);  // of 256, as measured against the reference
}

TEST(DequantizeBf16, RecoversTheCodeOfEveryScaleWhenQuantizedAgain) {
  for (uint32_t bits = 0; bits < 0x80; ++bits) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      const uint16_t scale = static_cast<uint16_t>(sign | (120u << 7) | bits);
      for (int q = -8; q < 8; ++q) {
        const float ratio = round_to_bf16(bf16_to_f32(dequantize_bf16(q, scale)) / bf16_to_f32(scale));
        ASSERT_EQ(std::nearbyint(ratio), static_cast<float>(q)) << scale << " " << q;
      }
    }
  }
}

}  // namespace
}  // namespace trefoil
