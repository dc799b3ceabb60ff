#include "checkpoint/linear_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/raw_checkpoint.h"
#include "support/test_support.h"
#include "tensor/bf16.h"
#include "tensor/float16.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using testing::fails_with;
using testing::raw_bytes;
using testing::RawTensor;
using testing::TempDir;

// A checkpoint of the given tensors, a one-byte tensor first so that nothing after it is aligned.
class Stored {
 public:
  explicit Stored(std::vector<RawTensor> tensors, Checkpoint::Access access = Checkpoint::Access::kMapped) {
    tensors.insert(tensors.begin(), {"_pad", "U8", {1}, "x"});
    testing::write_raw_checkpoint(folder_.path(), {{"s", tensors}});
    checkpoint_.emplace(Checkpoint::open(folder_.path(), access));
  }
  const Checkpoint& operator*() const { return *checkpoint_; }
  StoredLinear resolve(int num_bits_hint = 0) const { return resolve_linear(*checkpoint_, "m", num_bits_hint); }
  std::vector<float> decode(int64_t row_begin, int64_t row_end, int num_bits_hint = 0) const {
    const StoredLinear linear = resolve(num_bits_hint);
    std::vector<float> out(static_cast<size_t>((row_end - row_begin) * linear.in_features));
    decode_linear(*checkpoint_, linear, row_begin, row_end, out);
    return out;
  }

 private:
  TempDir folder_;
  std::optional<Checkpoint> checkpoint_;
};

::testing::AssertionResult refused(std::vector<RawTensor> tensors, ErrorCode code, const std::string& because,
                                   int num_bits_hint = 0) {
  const Stored stored(std::move(tensors));
  return fails_with(code, because, [&] { stored.resolve(num_bits_hint); });
}

RawTensor zeros(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape) {
  uint64_t bytes = 0;
  EXPECT_TRUE(byte_size_of(shape, *parse_dtype(dtype), &bytes));
  return {name, dtype, shape, std::string(bytes, '\0')};
}

RawTensor weight_shape(int64_t out, int64_t in) {
  return {"m.weight_shape", "I64", {2}, raw_bytes<int64_t>({out, in})};
}

std::vector<RawTensor> packed_zeros(int64_t out, int64_t in, int64_t words, int64_t groups) {
  return {zeros("m.weight_packed", "I32", {out, words}), zeros("m.weight_scale", "BF16", {out, groups}),
          weight_shape(out, in)};
}

// ---- resolving ----

TEST(ResolveLinear, FindsTheBundledModelsWeights) {
  const Checkpoint checkpoint = Checkpoint::open(testing::tiny_k3_dir());
  const std::string layer = "language_model.model.layers.1.";
  const StoredLinear expert = resolve_linear(checkpoint, layer + "block_sparse_moe.experts.3.w2");
  EXPECT_EQ(expert.format, LinearFormat::kMxfp4);
  EXPECT_EQ(expert.out_features, 128);
  EXPECT_EQ(expert.in_features, 192);
  EXPECT_EQ(expert.group_size, 32);
  EXPECT_EQ(expert.num_bits, 4);
  const StoredLinear plain = resolve_linear(checkpoint, layer + "self_attn.q_proj");
  EXPECT_EQ(plain.format, LinearFormat::kPlain);
  EXPECT_EQ(plain.num_bits, 16);
  EXPECT_TRUE(fails_with(ErrorCode::kNotFound, "nothing.weight", [&] { resolve_linear(checkpoint, "nothing"); }));
}

TEST(ResolveLinear, TellsBitsAndLayoutByWidth) {
  struct Case {
    int64_t words;
    int bits;
    PackedLayout layout;
  };
  for (const Case& c :
       {Case{308, 3, PackedLayout::kPadded}, Case{288, 3, PackedLayout::kDense}, Case{192, 2, PackedLayout::kDense},
        Case{384, 4, PackedLayout::kDense}, Case{768, 8, PackedLayout::kDense}}) {
    const Stored stored(packed_zeros(2, 3072, c.words, 48));
    const StoredLinear linear = stored.resolve();
    EXPECT_EQ(linear.format, LinearFormat::kPackedInt);
    EXPECT_EQ(linear.num_bits, c.bits);
    EXPECT_EQ(linear.layout, c.layout) << c.bits;
    EXPECT_EQ(linear.group_size, 64);
    EXPECT_EQ(linear.in_features, 3072);
  }
}

TEST(ResolveLinear, AHintIsCheckedAgainstTheWidth) {
  EXPECT_NO_THROW(Stored(packed_zeros(2, 3072, 288, 48)).resolve(3));
  EXPECT_TRUE(refused(packed_zeros(2, 3072, 288, 48), ErrorCode::kCorrupt, "not 4-bit codes as the config says", 4));
  EXPECT_TRUE(refused(packed_zeros(2, 3072, 300, 48), ErrorCode::kCorrupt, "none of 2, 3, 4 and 8 bits"));
}

TEST(ResolveLinear, NarrowRowsNeedTheHint) {
  EXPECT_TRUE(refused(packed_zeros(2, 8, 1, 1), ErrorCode::kUnsupported, "several bit widths"));
  EXPECT_EQ(Stored(packed_zeros(2, 8, 1, 1)).resolve(4).num_bits, 4);
  EXPECT_EQ(Stored(packed_zeros(2, 8, 1, 1)).resolve(3).num_bits, 3);  // both layouts are the same bytes
  EXPECT_TRUE(refused(packed_zeros(2, 32, 4, 1), ErrorCode::kUnsupported, "several bit widths"));  // 4, or 3 padded
  EXPECT_TRUE(refused(packed_zeros(2, 14, 2, 1), ErrorCode::kUnsupported, "too few to tell the padded layout", 3));
}

TEST(ResolveLinear, RefusesShapesThatContradictEachOther) {
  auto tensors = packed_zeros(2, 3072, 288, 48);
  tensors[2] = weight_shape(3, 3072);
  EXPECT_TRUE(refused(tensors, ErrorCode::kCorrupt, "m.weight_shape: I64 [2]: holds (3, 3072)"));
  for (const int64_t in : {INT64_C(-3072), INT64_C(0), INT64_MAX, INT64_MIN, INT64_C(3040)}) {
    tensors[2] = weight_shape(2, in);
    EXPECT_TRUE(refused(tensors, ErrorCode::kCorrupt, "m.weight")) << in;
  }
  EXPECT_TRUE(refused(packed_zeros(2, 3072, 288, 47), ErrorCode::kCorrupt, "divides 3072"));
  tensors = packed_zeros(2, 3072, 288, 48);
  tensors[1] = zeros("m.weight_scale", "BF16", {3, 48});
  EXPECT_TRUE(refused(tensors, ErrorCode::kCorrupt, "expected 2 rows"));
  tensors[1] = zeros("m.weight_scale", "BF16", {96});
  EXPECT_TRUE(refused(tensors, ErrorCode::kUnsupported, "two dimensions"));
  tensors[1] = zeros("m.weight_scale", "BF16", {2, 0});
  EXPECT_TRUE(refused(tensors, ErrorCode::kCorrupt, "is empty"));
}

TEST(ResolveLinear, RefusesMissingParts) {
  auto tensors = packed_zeros(2, 3072, 288, 48);
  tensors.pop_back();
  EXPECT_TRUE(refused(tensors, ErrorCode::kCorrupt, "no m.weight_shape"));
  tensors.pop_back();
  EXPECT_TRUE(refused(tensors, ErrorCode::kCorrupt, "no m.weight_scale"));
  EXPECT_TRUE(refused({zeros("m.weight_scale", "BF16", {2, 48})}, ErrorCode::kNotFound, "neither"));
}

TEST(ResolveLinear, ADtypeThatBelongsToTheOtherFormatIsRefused) {
  auto tensors = packed_zeros(2, 3072, 288, 48);
  tensors[1] = zeros("m.weight_scale", "U8", {2, 48});
  EXPECT_TRUE(refused(tensors, ErrorCode::kCorrupt, "beside an I32 weight_packed"));
  tensors[0] = zeros("m.weight_packed", "F32", {2, 288});
  EXPECT_TRUE(refused(tensors, ErrorCode::kUnsupported, "U8 (MXFP4) or I32"));
  EXPECT_TRUE(refused({zeros("m.weight_packed", "U8", {2, 32}), zeros("m.weight_scale", "BF16", {2, 2})},
                      ErrorCode::kCorrupt, "beside a U8 weight_packed"));
  EXPECT_TRUE(refused({zeros("m.weight_packed", "U8", {2, 32}), zeros("m.weight_scale", "F8_E4M3", {2, 4})},
                      ErrorCode::kCorrupt, "beside a U8 weight_packed"));
}

TEST(ResolveLinear, Mxfp4ShapesAreChecked) {
  const RawTensor packed = zeros("m.weight_packed", "U8", {2, 32});
  EXPECT_NO_THROW(Stored({packed, zeros("m.weight_scale", "U8", {2, 2})}).resolve());
  EXPECT_TRUE(refused({packed, zeros("m.weight_scale", "U8", {2, 4})}, ErrorCode::kCorrupt, "expected [2, 2]"));
  EXPECT_TRUE(refused({zeros("m.weight_packed", "U8", {2, 24}), zeros("m.weight_scale", "U8", {2, 1})},
                      ErrorCode::kCorrupt, "not a multiple of 32"));
  EXPECT_TRUE(refused({packed, zeros("m.weight_scale", "U8", {2, 2}), weight_shape(2, 32)}, ErrorCode::kCorrupt,
                      "the other tensors say (2, 64)"));
}

TEST(ResolveLinear, NoCompanionIsOverlooked) {
  for (const char* name : {"m.weight_zero_point", "m.weight_g_idx", "m.weight_global_scale", "m.weight_scale_inv",
                           "m.input_scale", "m.input_global_scale", "m.output_scale", "m.weight_packed_extra"}) {
    auto tensors = packed_zeros(2, 3072, 288, 48);
    tensors.push_back(zeros(name, "F32", {1}));
    EXPECT_TRUE(refused(tensors, ErrorCode::kUnsupported, name)) << name;
    EXPECT_TRUE(refused({zeros("m.weight", "BF16", {2, 2}), zeros(name, "F32", {1})}, ErrorCode::kUnsupported, name));
  }
  // Neighbours whose names only begin alike are someone else's.
  EXPECT_NO_THROW(Stored({zeros("m.weight", "BF16", {2, 2}), zeros("m.bias", "BF16", {2}),
                          zeros("m2.weight_g_idx", "I32", {2}), zeros("n.m.weight_g_idx", "I32", {2})})
                      .resolve());
}

TEST(ResolveLinear, APlainWeightStandsAlone) {
  const RawTensor weight = zeros("m.weight", "BF16", {2, 64});
  EXPECT_TRUE(
      refused({weight, zeros("m.weight_scale", "BF16", {2, 1})}, ErrorCode::kCorrupt, "beside the plain m.weight"));
  EXPECT_TRUE(
      refused({weight, zeros("m.weight_packed", "U8", {2, 32})}, ErrorCode::kCorrupt, "beside the plain m.weight"));
  EXPECT_TRUE(refused({weight, weight_shape(2, 64)}, ErrorCode::kCorrupt, "beside the plain m.weight"));
  EXPECT_TRUE(refused({zeros("m.weight", "I8", {2, 64}), zeros("m.weight_scale", "BF16", {2, 1})},
                      ErrorCode::kUnsupported, "a plain weight is BF16, F16 or F32"));
  EXPECT_TRUE(refused({zeros("m.weight", "BF16", {2, 1, 4})}, ErrorCode::kUnsupported, "two dimensions"));
  EXPECT_TRUE(refused({zeros("m.weight", "BF16", {0, 4})}, ErrorCode::kCorrupt, "is empty"));
}

// ---- decoding ----

// 32 columns, 3 bits: codes 0..7 four times over, so q = -4..3.
std::vector<uint32_t> code_ramp(PackedLayout layout, int bits = 3, int cols = 32) {
  std::vector<int8_t> q(static_cast<size_t>(cols));
  for (int k = 0; k < cols; ++k) q[static_cast<size_t>(k)] = static_cast<int8_t>(k % 8 - 4);
  std::vector<uint32_t> words(static_cast<size_t>(packed_words(bits, cols, layout)));
  pack_row(bits, layout, q, words);
  return words;
}

std::vector<RawTensor> packed_row(const std::vector<uint32_t>& words, const std::string& dtype,
                                  const std::string& scale) {
  return {{"m.weight_packed", "I32", {1, static_cast<int64_t>(words.size())}, raw_bytes(words)},
          {"m.weight_scale", dtype, {1, 1}, scale},
          weight_shape(1, 32)};
}

TEST(DecodeLinear, IntegersGiveTheReferenceBitsInBothLayouts) {
  const uint16_t expected[] = {0xc0db, 0xc0a4, 0xc05b, 0xbfdb, 0x0000, 0x3fdb, 0x405b, 0x40a4};
  for (const PackedLayout layout : {PackedLayout::kPadded, PackedLayout::kDense}) {
    for (const auto access : {Checkpoint::Access::kMapped, Checkpoint::Access::kRead}) {
      const Stored stored(packed_row(code_ramp(layout), "BF16", raw_bytes<uint16_t>({0x3fdb})), access);
      const std::vector<float> row = stored.decode(0, 1, 3);  // four words could also be 4-bit codes
      for (size_t k = 0; k < 32; ++k) ASSERT_EQ(row[k], bf16_to_f32(expected[k % 8])) << k;
    }
  }
}

TEST(DecodeLinear, ANegativeScaleGivesMinusZero) {
  const Stored stored(packed_row(code_ramp(PackedLayout::kDense), "BF16", raw_bytes<uint16_t>({0xbf92})));
  const uint16_t expected[] = {0x4092, 0x405b, 0x4012, 0x3f92, 0x8000, 0xbf92, 0xc012, 0xc05b};
  const std::vector<float> row = stored.decode(0, 1);
  for (size_t k = 0; k < 8; ++k) EXPECT_EQ(f32_to_bf16(row[k]), expected[k]) << k;
}

TEST(DecodeLinear, TheScalesDtypeDecidesTheRounding) {
  const float scale = 1.0009765625f;  // 1 + 2^-10, in F16 and F32
  const Stored half(packed_row(code_ramp(PackedLayout::kDense), "F16", raw_bytes<uint16_t>({f32_to_f16(scale)})));
  const Stored single(packed_row(code_ramp(PackedLayout::kDense), "F32", raw_bytes<float>({scale})));
  EXPECT_EQ(half.decode(0, 1)[7], f16_to_f32(f32_to_f16(3 * scale)));
  EXPECT_EQ(single.decode(0, 1)[7], 3 * scale);
  EXPECT_NE(half.decode(0, 1)[7], 3 * scale);
}

// Three rows of two groups: the last row and the last group use their own scales.
TEST(DecodeLinear, RowsAndGroupsUseTheirOwnScales) {
  std::vector<uint32_t> words;
  for (int row = 0; row < 3; ++row) {
    const std::vector<uint32_t> one = code_ramp(PackedLayout::kPadded, 3, 128);
    words.insert(words.end(), one.begin(), one.end());
  }
  std::vector<uint16_t> scales;
  for (const float scale : {1.0f, 2.0f, 4.0f, 8.0f, 16.0f, 32.0f}) scales.push_back(f32_to_bf16(scale));
  const Stored stored({{"m.weight_packed", "I32", {3, 13}, raw_bytes(words)},
                       {"m.weight_scale", "BF16", {3, 2}, raw_bytes(scales)},
                       weight_shape(3, 128)});
  const std::vector<float> rows = stored.decode(1, 3);
  EXPECT_EQ(rows[0], -4.0f * 4);
  EXPECT_EQ(rows[64], -4.0f * 8);
  EXPECT_EQ(rows[128 + 63], 3.0f * 16);
  EXPECT_EQ(rows[128 + 127], 3.0f * 32);
  EXPECT_TRUE(stored.decode(2, 2).empty());
}

// More than the 1 MiB that one read takes, so that the blocks' seams are crossed.
TEST(DecodeLinear, ManyRowsEqualRowsOneByOne) {
  constexpr int64_t kRows = 2500, kCols = 256;
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (const auto access : {Checkpoint::Access::kMapped, Checkpoint::Access::kRead}) {
    const Stored stored({{"m.weight", "F32", {kRows, kCols}, raw_bytes(values)}}, access);
    EXPECT_EQ(stored.decode(0, kRows), values);
    EXPECT_EQ(stored.decode(kRows - 1, kRows).front(), values[(kRows - 1) * kCols]);
  }
}

TEST(DecodeLinear, PlainWeightsOfEveryDtype) {
  const Stored bf16({{"m.weight", "BF16", {1, 2}, raw_bytes<uint16_t>({0x3f80, 0xc0a0})}});
  EXPECT_THAT(bf16.decode(0, 1), ElementsAre(1.0f, -5.0f));
  const Stored f16({{"m.weight", "F16", {1, 2}, raw_bytes<uint16_t>({0x3c00, 0x0001})}});
  EXPECT_THAT(f16.decode(0, 1), ElementsAre(1.0f, 0x1p-24f));
}

TEST(DecodeLinear, Mxfp4GivesTheReferenceValues) {
  std::string codes = "\x9E\x80\x7F\x13";
  codes.resize(16, '\0');
  const Stored stored({{"m.weight_packed", "U8", {1, 16}, codes}, {"m.weight_scale", "U8", {1, 1}, "\x7F"}});
  const std::vector<float> row = stored.decode(0, 1);
  EXPECT_THAT(std::vector<float>(row.begin(), row.begin() + 8), ElementsAre(-4, -0.5, 0, -0.0, -6, 6, 1.5, 0.5));
}

// A wrong stride between experts or groups shows in the last one first: its last scale is the file's last byte.
TEST(DecodeLinear, EveryExpertHasItsOwnScalesUpToTheLastByteOfTheFile) {
  constexpr int kExperts = 7, kRows = 3, kGroups = 2;
  std::vector<RawTensor> tensors;
  for (int expert = 0; expert < kExperts; ++expert) {
    const std::string module = "experts." + std::to_string(expert) + ".w1";
    std::string scales;
    for (int i = 0; i < kRows * kGroups; ++i) scales += static_cast<char>(100 + expert * kRows * kGroups + i);
    tensors.push_back({module + ".weight_packed", "U8", {kRows, 32}, std::string(kRows * 32, '\x22')});  // all 1.0
    tensors.push_back({module + ".weight_scale", "U8", {kRows, kGroups}, scales});
  }
  for (const auto access : {Checkpoint::Access::kMapped, Checkpoint::Access::kRead}) {
    const Stored stored(tensors, access);
    for (int expert = kExperts - 1; expert >= 0; --expert) {
      const StoredLinear linear = resolve_linear(*stored, "experts." + std::to_string(expert) + ".w1");
      std::vector<float> row(64);
      for (int r = 0; r < kRows; ++r) {
        decode_linear(*stored, linear, r, r + 1, row);
        for (int g = 0; g < kGroups; ++g) {
          const float expected = std::exp2(static_cast<float>(100 - 127 + (expert * kRows + r) * kGroups + g));
          EXPECT_EQ(row[static_cast<size_t>(g * 32)], expected) << expert << " " << r << " " << g;
          EXPECT_EQ(row[static_cast<size_t>(g * 32 + 31)], expected) << expert << " " << r << " " << g;
        }
      }
    }
  }
}

// Bytes that lie one off any alignment, as a read buffer of an unaligned checkpoint has them; all rows, or only some.
TEST(DecodeStored, EqualsDecodeLinearAtAnyAlignment) {
  const Stored stored(packed_row(code_ramp(PackedLayout::kDense), "BF16", raw_bytes<uint16_t>({0x3fdb})));
  const Checkpoint bundled = Checkpoint::open(testing::tiny_k3_dir());
  const auto expect_equal = [](const Checkpoint& checkpoint, const StoredLinear& linear) {
    const auto shifted = [&](const TensorRef* tensor, int64_t first_row) {
      std::vector<std::byte> bytes(1);
      if (tensor == nullptr) return bytes;
      const std::vector<std::byte> all = checkpoint.read_all(*tensor);
      const auto skipped = static_cast<std::ptrdiff_t>(all.size()) / linear.out_features * first_row;
      bytes.insert(bytes.end(), all.begin() + skipped, all.end());
      return bytes;
    };
    for (const int64_t first_row : {int64_t{0}, linear.out_features / 2}) {
      const std::vector<std::byte> weight = shifted(linear.weight, first_row),
                                   packed = shifted(linear.packed, first_row), scale = shifted(linear.scale, first_row);
      const StoredMatrix matrix = {&linear, first_row, Bytes(weight).subspan(1), Bytes(packed).subspan(1),
                                   Bytes(scale).subspan(1)};
      std::vector<float> expected(static_cast<size_t>((linear.out_features - first_row) * linear.in_features));
      std::vector<float> got(expected.size());
      decode_linear(checkpoint, linear, first_row, linear.out_features, expected);
      decode_stored(matrix, first_row, linear.out_features, got);
      EXPECT_EQ(got, expected) << linear.module << " from row " << first_row;
    }
  };
  expect_equal(*stored, stored.resolve(3));
  for (const char* module : {"self_attn.q_proj", "block_sparse_moe.experts.3.w2"})
    expect_equal(bundled, resolve_linear(bundled, std::string("language_model.model.layers.1.") + module));
}

TEST(DecodeLinear, NamesTensorAndRowOfWhatCannotBeDecoded) {
  const auto refused_row = [](std::vector<RawTensor> tensors, const std::string& because) {
    const Stored stored(std::move(tensors));
    return fails_with(ErrorCode::kCorrupt, because, [&] { stored.decode(0, stored.resolve().out_features); });
  };
  EXPECT_TRUE(refused_row(
      {{"m.weight_packed", "U8", {2, 16}, std::string(32, '\0')}, {"m.weight_scale", "U8", {2, 1}, "\x7F\xFF"}},
      "m.weight_scale: row 1: a scale byte is 255"));
  const std::vector<uint32_t> words = code_ramp(PackedLayout::kDense);
  for (const uint16_t scale : {0x7FC0, 0x7F80, 0xFF80}) {
    EXPECT_TRUE(refused_row(packed_row(words, "BF16", raw_bytes<uint16_t>({scale})),
                            "m.weight_scale: row 0: a value is not finite"));
  }
  EXPECT_TRUE(
      refused_row(packed_row(words, "BF16", raw_bytes<uint16_t>({0x7F7F})), "m.weight_packed: row 0"));  // 4 * largest
  EXPECT_TRUE(refused_row({{"m.weight", "F32", {1, 2}, raw_bytes<float>({1.0f, std::nanf("")})}}, "m.weight: row 0"));
}

}  // namespace
}  // namespace trefoil
