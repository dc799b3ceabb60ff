#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "support/expect_error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using testing::fails_with;

// From a buffer of exactly the text's size.
CheckpointIndex parse(const std::string& json) {
  const std::unique_ptr<char[]> exact(new char[json.size()]);
  std::memcpy(exact.get(), json.data(), json.size());
  return parse_index({exact.get(), json.size()}, "i.json");
}

::testing::AssertionResult refused(const std::string& json, const std::string& because) {
  return fails_with(ErrorCode::kCorrupt, because, [&] { parse(json); });
}

std::string with_size(const std::string& size) {
  return R"({"metadata":{"total_size":)" + size + R"(},"weight_map":{"a":"s"}})";
}

std::string with_shard(const std::string& shard) {
  return R"({"weight_map":{"a":")" + shard + R"("}})";
}

TEST(Index, IsSortedHoweverItWasWritten) {
  const CheckpointIndex index = parse(
      R"({"metadata":{"total_size":35,"total_parameters":7},"weight_map":{"c":"s2","b":"s1","a10":"s2","a9":"s3"},"other":[1]})");
  EXPECT_THAT(index.shards, ElementsAre("s1", "s2", "s3"));
  ASSERT_EQ(index.entries.size(), 4u);
  EXPECT_EQ(index.entries[0].name, "a10");
  EXPECT_EQ(index.entries[1].name, "a9");
  EXPECT_EQ(index.total_size, 35u);
  EXPECT_EQ(index.find("c")->shard, 1u);
  EXPECT_EQ(index.find("a9")->shard, 2u);
  EXPECT_EQ(index.find("a"), nullptr);
  EXPECT_EQ(index.find("z"), nullptr);
}

TEST(Index, RefusesRepeatedKeys) {
  EXPECT_TRUE(refused(R"({"weight_map":{"a":"s","b":"s","a":"t"}})", "tensor a appears twice"));
  EXPECT_TRUE(refused(R"({"weight_map":{"a":"s","\u0061":"s"}})", "tensor a appears twice"));
  EXPECT_TRUE(refused(R"({"weight_map":{"a":"s"},"weight_map":{"b":"s"}})", "\"weight_map\" appears twice"));
  EXPECT_TRUE(refused(R"({"metadata":{},"metadata":{},"weight_map":{}})", "\"metadata\" appears twice"));
  EXPECT_TRUE(refused(R"({"metadata":{"total_size":1,"total_size":2},"weight_map":{}})", "total_size appears twice"));
}

TEST(Index, ShardNamesNeverLeadOutOfTheFolder) {
  for (const char* shard : {"../s", "x/s", "/etc/passwd", "..", ".", "", "a..b", "x\\\\s", "s\\u0000", "s\\n"}) {
    EXPECT_TRUE(refused(with_shard(shard), shard == std::string("") ? "\"\"" : "is not a plain file name")) << shard;
  }
  EXPECT_NO_THROW(parse(with_shard("model-00001-of-000096.safetensors")));
  EXPECT_NO_THROW(parse(with_shard(".hidden")));
}

TEST(Index, RefusesWhatIsNotAnIndex) {
  EXPECT_TRUE(refused("", "not valid JSON"));
  EXPECT_TRUE(refused("[]", "the index is not an object"));
  EXPECT_TRUE(refused("{}", "no weight_map"));
  EXPECT_TRUE(refused(R"({"weight_map":[]})", "weight_map is not an object"));
  EXPECT_TRUE(refused(R"({"weight_map":{"a":1}})", "the shard is not a string"));
  EXPECT_TRUE(refused(R"({"weight_map":{"":"s"}})", "name is empty"));
  EXPECT_TRUE(refused(R"({"metadata":5,"weight_map":{}})", "metadata is not an object"));
}

TEST(Index, TotalSizeIsASizeOrRefused) {
  EXPECT_EQ(parse(with_size("1560860324864")).total_size, 1560860324864u);
  EXPECT_EQ(parse(with_size("1.6e10")).total_size, 16000000000u);  // some writers count in floating point
  EXPECT_EQ(parse(R"({"weight_map":{"a":"s"}})").total_size, 0u);
  EXPECT_EQ(parse(R"({"metadata":{"total_size":0},"weight_map":{}})").total_size, 0u);
  for (const char* size : {"-1", "1.5", "-2.0", "1e300", "\"4\"", "null", "true", "9223372036854775808"}) {
    EXPECT_TRUE(refused(with_size(size), "total_size is not")) << size;
  }
  EXPECT_TRUE(refused(with_size("18446744073709551616"), "i.json"));
  EXPECT_TRUE(refused(with_size("0"), "total_size is 0 for 1 tensors"));
}

TEST(Index, EveryTruncatedPrefixIsRefused) {
  const std::string whole = R"({"metadata":{"total_size":35},"weight_map":{"b":"s1","a":"s2"}})";
  EXPECT_NO_THROW(parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_THROW(parse(whole.substr(0, size)), Error) << size;
  EXPECT_THROW(parse(whole + "}"), Error);
}

TEST(Index, IsWrittenAsTheReferenceWritesIt) {
  CheckpointIndex index;
  index.shards = {"s1", "s2"};
  index.entries = {{"a\"", 1}, {"b", 0}};
  index.total_size = 35;
  const std::string expected = R"({
  "metadata": {
    "total_size": 35
  },
  "weight_map": {
    "a\"": "s2",
    "b": "s1"
  }
}
)";
  EXPECT_EQ(write_index(index), expected);
  EXPECT_EQ(write_index(parse(expected)), expected);
  EXPECT_EQ(write_index(parse(write_index({}))), write_index({}));
}

TEST(Index, TheBundledOneLoads) {
  const fs::path file = testing::tiny_k3_dir() / "model.safetensors.index.json";
  const CheckpointIndex loaded = load_index(file);
  const CheckpointIndex parsed = parse(testing::read_text(file));
  EXPECT_EQ(loaded.total_size, 16264960u);
  EXPECT_EQ(loaded.shards.size(), 8u);
  EXPECT_EQ(write_index(loaded), write_index(parsed));
}

}  // namespace
}  // namespace trefoil
