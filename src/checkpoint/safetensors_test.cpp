#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/raw_checkpoint.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using testing::fails_with;
using testing::raw_container;
using testing::RawTensor;
using testing::TempDir;

// Parses `json` as the header of a file with `data_size` bytes of data, from a buffer of exactly its size.
SafetensorsHeader parse(const std::string& json, uint64_t data_size) {
  const std::unique_ptr<char[]> exact(new char[json.size()]);
  std::memcpy(exact.get(), json.data(), json.size());
  return parse_safetensors_header({exact.get(), json.size()}, 8 + json.size() + data_size, "t.safetensors");
}

::testing::AssertionResult refused(const std::string& json, uint64_t data_size, const std::string& because,
                                   ErrorCode code = ErrorCode::kCorrupt) {
  return fails_with(code, because, [&] { parse(json, data_size); });
}

// A header of one tensor "a" of 16 bytes with one field replaced.
std::string one_tensor(const std::string& dtype = R"("BF16")", const std::string& shape = "[2,4]",
                       const std::string& offsets = "[0,16]") {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

std::string two_tensors(const std::string& first, const std::string& second) {
  return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
         R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
}

std::string file_bytes() {
  return testing::raw_safetensors({{"a", "BF16", {2, 4}, std::string(16, 'a')}, {"b", "U8", {3}, "bbb"}});
}

SafetensorsHeader read_file(const fs::path& folder, const std::string& bytes) {
  testing::write_text(folder / "t.safetensors", bytes);
  return read_safetensors_header(InputFile(folder / "t.safetensors"));
}

TEST(SafetensorsHeader, ReadsTensorsInFileOrderWithMetadata) {
  const SafetensorsHeader header =
      parse(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]},"__metadata__":{"format":"pt","x":"é\n"},)"
            R"("a":{"data_offsets":[0,16],"shape":[2,4],"dtype":"BF16"}}   )",
            19);
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::kBF16);
  EXPECT_THAT(header.tensors[0].shape, ElementsAre(2, 4));
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].begin, 16u);
  EXPECT_EQ(header.tensors[1].size(), 3u);
  EXPECT_THAT(header.metadata, ElementsAre(::testing::Pair("format", "pt"), ::testing::Pair("x", "é\n")));
}

TEST(SafetensorsHeader, AcceptsScalarsEmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(parse("{}", 0).tensors.empty());
  EXPECT_EQ(parse(R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})", 8).tensors[0].size(), 8u);
  const SafetensorsHeader header = parse(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"z":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]},)"
      R"("e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
      4);
  EXPECT_EQ(header.tensors[0].name, "e");
  EXPECT_EQ(header.tensors[2].name, "z");
}

TEST(SafetensorsHeader, TensorNamesAreOnlyKeysAndNeverPaths) {
  EXPECT_EQ(parse(R"({"/../etc/passwd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1).tensors[0].name,
            "/../etc/passwd");
  EXPECT_TRUE(refused(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "name is empty"));
  EXPECT_TRUE(refused(R"({"a\nb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "control characters"));
  EXPECT_TRUE(refused(R"({"a":{"\u001b[2J":1}})", 1, "unknown key \"\\u001b[2J\""));  // not to a terminal
  EXPECT_TRUE(refused(R"({"a\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "control characters"));
}

TEST(SafetensorsHeader, RefusesWhatIsNotOneObject) {
  EXPECT_TRUE(refused("", 0, "does not begin with '{'"));
  EXPECT_TRUE(refused(" {}", 0, "does not begin with '{'"));
  EXPECT_TRUE(refused("[]", 0, "does not begin with '{'"));
  EXPECT_TRUE(refused("{", 0, "not valid JSON"));
  EXPECT_TRUE(refused("{} {}", 0, "not valid JSON"));
  EXPECT_TRUE(refused("{}x", 0, "not valid JSON"));
  EXPECT_TRUE(refused(std::string("{}\0", 3), 0, "not valid JSON"));
  EXPECT_TRUE(refused("{\"a\xff\":1}", 0, "not valid JSON"));
  EXPECT_TRUE(refused(R"({"a":[]})", 0, "a is not an object"));
  EXPECT_TRUE(refused(R"({"a":)" + std::string(2000, '[') + std::string(2000, ']') + "}", 0, "not valid JSON"));
}

TEST(SafetensorsHeader, RefusesRepeatedKeysEverywhere) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_TRUE(refused("{" + a + "," + a + "}", 1, "tensor a appears twice"));
  // The second copy where a tiling file would have it: the name alone must refuse it.
  EXPECT_TRUE(
      refused("{" + a + R"(,"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "tensor a appears twice"));
  EXPECT_TRUE(refused("{" + a + R"(,"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "appears twice"));
  EXPECT_TRUE(
      refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "\"dtype\" appears twice"));
  EXPECT_TRUE(
      refused(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, "\"shape\" appears twice"));
  EXPECT_TRUE(refused(R"({"__metadata__":{},"__metadata__":{},)" + a + "}", 1, "__metadata__ appears twice"));
  EXPECT_TRUE(refused(R"({"__metadata__":{"k":"1","k":"2"},)" + a + "}", 1, "holds \"k\" twice"));
}

TEST(SafetensorsHeader, RefusesMetadataThatIsNotStrings) {
  EXPECT_TRUE(refused(R"({"__metadata__":{"a":1}})", 0, "__metadata__ \"a\" is not a string"));
  EXPECT_TRUE(refused(R"({"__metadata__":{"a":{"b":"c"}}})", 0, "is not a string"));
  EXPECT_TRUE(refused(R"({"__metadata__":null})", 0, "__metadata__ is not an object"));
  EXPECT_TRUE(refused(R"({"__metadata__":"x"})", 0, "__metadata__ is not an object"));
}

TEST(SafetensorsHeader, RefusesMissingUnknownAndIllTypedFields) {
  EXPECT_TRUE(refused(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "one is missing"));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "one is missing"));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "one is missing"));
  EXPECT_TRUE(
      refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1]}})", 1, "unknown key \"stride\""));
  EXPECT_TRUE(refused(one_tensor("5"), 16, "dtype is not a string"));
  EXPECT_TRUE(refused(one_tensor(R"("BF15")"), 16, "unknown dtype \"BF15\"", ErrorCode::kUnsupported));
  EXPECT_TRUE(refused(one_tensor(R"("BF16")", R"("2,4")"), 16, "shape is not an array"));
  EXPECT_TRUE(refused(one_tensor(R"("BF16")", "[2,4]", "[0]"), 16, "data_offsets has 1 numbers"));
  EXPECT_TRUE(refused(one_tensor(R"("BF16")", "[2,4]", "[0,16,16]"), 16, "data_offsets has 3 numbers"));
}

TEST(SafetensorsHeader, RefusesNumbersThatAreNotSizes) {
  for (const char* dim :
       {"-2", "2.0", "2e0", "1e400", "18446744073709551615", "9223372036854775808", "1e3", "\"2\"", "null", "true"}) {
    const std::string shape = std::string("[") + dim + ",4]";
    EXPECT_THROW(parse(one_tensor(R"("BF16")", shape), 16), Error) << dim;
    EXPECT_THROW(parse(one_tensor(R"("BF16")", "[2,4]", std::string("[0,") + dim + "]"), 16), Error) << dim;
  }
  EXPECT_TRUE(refused(one_tensor(R"("BF16")", "[-2,-4]"), 16, "not a non-negative"));
}

TEST(SafetensorsHeader, RefusesSizesThatOverflow) {
  EXPECT_TRUE(refused(one_tensor(R"("BF16")", "[4294967296,4294967296,2]"), 16, "does not fit 63 bits"));
  EXPECT_TRUE(refused(one_tensor(R"("F64")", "[2305843009213693952]"), 16, "does not fit 63 bits"));  // 2^61 * 8 = 2^64
  EXPECT_TRUE(refused(one_tensor(R"("BF16")", "[4611686018427387904]"), 16, "does not fit 63 bits"));  // 2^62 * 2
  EXPECT_TRUE(refused(one_tensor(R"("U8")", "[9223372036854775807]", "[0,9223372036854775807]"), 16, "truncated"));
}

TEST(SafetensorsHeader, RefusesOffsetsThatDoNotHoldTheTensor) {
  EXPECT_TRUE(refused(one_tensor(R"("BF16")", "[2,4]", "[0,15]"), 15, "do not hold the 16 bytes of BF16 [2, 4]"));
  EXPECT_TRUE(refused(one_tensor(R"("F32")"), 16, "do not hold the 32 bytes"));
  EXPECT_TRUE(refused(one_tensor(R"("BF16")", "[2,4]", "[16,0]"), 16, "do not hold"));
}

TEST(SafetensorsHeader, RefusesGapsOverlapsTruncationAndTrailingBytes) {
  EXPECT_NO_THROW(parse(two_tensors("[0,4]", "[4,8]"), 8));
  EXPECT_NO_THROW(parse(two_tensors("[4,8]", "[0,4]"), 8));
  EXPECT_TRUE(refused(two_tensors("[0,4]", "[5,9]"), 9, "b begins at 5, expected 4: tensors leave a gap"));
  EXPECT_TRUE(refused(two_tensors("[0,4]", "[3,7]"), 7, "b begins at 3, expected 4: tensors overlap"));
  EXPECT_TRUE(refused(two_tensors("[0,4]", "[0,4]"), 4, "overlap"));
  EXPECT_TRUE(refused(two_tensors("[1,5]", "[5,9]"), 9, "a begins at 1, expected 0"));
  EXPECT_TRUE(refused(two_tensors("[0,4]", "[4,8]"), 7, "it is truncated"));
  EXPECT_TRUE(refused(two_tensors("[0,4]", "[4,8]"), 9, "bytes after the last tensor"));
  EXPECT_TRUE(refused("{}", 1, "bytes after the last tensor"));
}

TEST(SafetensorsHeader, AnEmptyTensorInsideAnotherIsAnOverlap) {
  EXPECT_TRUE(refused(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"e":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", 4,
      "overlap"));
}

TEST(SafetensorsFile, EveryTruncatedPrefixIsRefused) {
  const TempDir folder;
  const std::string whole = file_bytes();
  EXPECT_NO_THROW(read_file(folder.path(), whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(
        fails_with(ErrorCode::kCorrupt, "t.safetensors", [&] { read_file(folder.path(), whole.substr(0, size)); }))
        << size << " of " << whole.size() << " bytes";
  }
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "after the last tensor", [&] { read_file(folder.path(), whole + "x"); }));
}

TEST(SafetensorsFile, EveryTruncatedPrefixOfTheHeaderIsRefusedInMemory) {
  const std::string whole = file_bytes();
  const uint64_t length = load<uint64_t>(whole.data());
  const std::string json = whole.substr(8, length);
  for (size_t size = 0; size < json.size(); ++size) {
    EXPECT_THROW(parse(json.substr(0, size), whole.size() - 8 - size), Error) << size;
  }
}

TEST(SafetensorsFile, RefusesHeaderLengthsBeyondTheLimitOrTheFile) {
  const TempDir folder;
  const auto with_length = [&](uint64_t length) {
    std::string bytes = file_bytes();
    std::memcpy(bytes.data(), &length, sizeof(length));
    return [&folder, bytes] { read_file(folder.path(), bytes); };
  };
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "at most 100000000", with_length(100'000'001)));
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "at most 100000000", with_length(UINT64_MAX)));
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "bytes in all", with_length(100'000'000)));
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "bytes in all", with_length(file_bytes().size() - 7)));
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "does not begin", with_length(0)));
}

std::vector<TensorPlan> plan_of_two() {
  return {{"b", DType::kU8, {3}}, {"a", DType::kBF16, {2, 4}}};
}

TEST(SafetensorsWriter, WritesTheContainerByteForByte) {
  const TempDir folder;
  SafetensorsWriter writer(folder.path() / "t", {{"b\"\\é", DType::kU8, {3}}, {"a", DType::kI64, {}}}, 8,
                           {{"format", "pt"}, {"note", "line\n\x01"}});
  writer.write("b\"\\é", as_bytes_of("xyz"));
  writer.write("a", as_bytes_of("01234567"));
  writer.commit();
  std::string json = R"({"__metadata__":{"format":"pt","note":"line\u000a\u0001"},)"
                     R"("b\"\\é":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                     R"("a":{"dtype":"I64","shape":[],"data_offsets":[3,11]}})";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(testing::read_text(folder.path() / "t"), raw_container(json, "xyz01234567"));
}

TEST(SafetensorsWriter, WhatItWritesTheReaderReadsAtEitherAlignment) {
  const TempDir folder;
  for (const uint64_t alignment : {8, 4096}) {
    SafetensorsWriter writer(folder.path() / "t", plan_of_two(), alignment, {{"format", "pt"}, {"layout", "dense"}});
    writer.write("b", as_bytes_of("bb"));
    writer.write("b", as_bytes_of("b"));
    writer.write("a", as_bytes_of("0123456789abcdef"));
    writer.commit();
    const InputFile file(folder.path() / "t");
    const SafetensorsHeader header = read_safetensors_header(file);
    EXPECT_EQ(header.data_start % alignment, 0u);
    ASSERT_EQ(header.tensors.size(), 2u);
    EXPECT_EQ(header.tensors[0].name, "b");
    EXPECT_EQ(header.tensors[1].begin, 3u);
    EXPECT_EQ(header.metadata.at("layout"), "dense");
    std::string tail(3, '?');
    file.read_at(header.data_start, std::as_writable_bytes(std::span(tail)));
    EXPECT_EQ(tail, "bbb");
  }
}

TEST(SafetensorsWriter, HoldsTheCallerToThePlan) {
  const TempDir folder;
  const auto with_writer = [&](auto use) {
    return [&folder, use] {
      SafetensorsWriter writer(folder.path() / "t", plan_of_two());
      use(writer);
    };
  };
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "a is written where b was planned",
                         with_writer([](auto& w) { w.write("a", as_bytes_of("x")); })));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "tensor b: 4 bytes after 0 of 3",
                         with_writer([](auto& w) { w.write("b", as_bytes_of("xxxx")); })));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "a is written where b was planned", with_writer([](auto& w) {
                           w.write("b", as_bytes_of("xx"));
                           w.write("a", as_bytes_of("x"));
                         })));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "tensor a: 0 of 16", with_writer([](auto& w) {
                           w.write("b", as_bytes_of("xxx"));
                           w.commit();
                         })));
  EXPECT_TRUE(
      fails_with(ErrorCode::kInvalidArgument, "c is written where the end was planned", with_writer([](auto& w) {
                   w.write("b", as_bytes_of("xxx"));
                   w.write("a", as_bytes_of("0123456789abcdef"));
                   w.write("c", {});
                 })));
  EXPECT_TRUE(fs::is_empty(folder.path())) << "a refused shard leaves nothing behind";
}

TEST(SafetensorsWriter, RefusesPlansThatNoReaderWouldTake) {
  const TempDir folder;
  const auto plan = [&](std::vector<TensorPlan> tensors) {
    return [&folder, tensors] { SafetensorsWriter writer(folder.path() / "t", tensors); };
  };
  EXPECT_TRUE(
      fails_with(ErrorCode::kInvalidArgument, "planned twice", plan({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}})));
  EXPECT_TRUE(
      fails_with(ErrorCode::kInvalidArgument, "cannot be a tensor's name", plan({{"__metadata__", DType::kU8, {1}}})));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "63 bits", plan({{"a", DType::kBF16, {INT64_MAX}}})));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "63 bits", plan({{"a", DType::kBF16, {-1}}})));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "UTF-8", plan({{"\xff", DType::kU8, {1}}})));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SafetensorsWriter, AnEmptyTensorMayBeWrittenOrSkipped) {
  const TempDir folder;
  SafetensorsWriter writer(folder.path() / "t",
                           {{"e", DType::kU8, {0}}, {"a", DType::kU8, {1}}, {"z", DType::kU8, {0}}});
  writer.write("a", as_bytes_of("x"));
  writer.commit();
  EXPECT_EQ(read_safetensors_header(InputFile(folder.path() / "t")).tensors.size(), 3u);
}

}  // namespace
}  // namespace trefoil
