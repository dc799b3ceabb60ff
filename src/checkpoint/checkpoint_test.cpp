#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/raw_checkpoint.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using testing::fails_with;
using testing::RawShards;
using testing::TempDir;

constexpr const char* kIndex = "model.safetensors.index.json";

RawShards two_shards() {
  return {{"s1", {{"b", "U8", {3}, "bbb"}, {"a", "BF16", {2, 2}, "aaaaAAAA"}}},
          {"s2", {{"c", "I64", {1}, "cccccccc"}}}};
}

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A checkpoint folder of two shards on which a test may do damage before it opens it.
class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() { testing::write_raw_checkpoint(path(), two_shards()); }

  const fs::path& path() const { return folder_.path(); }
  // Replaces the index by that of other shards.
  void claim(const RawShards& shards) { testing::write_text(path() / kIndex, testing::raw_index(shards)); }
  ::testing::AssertionResult refused(ErrorCode code, const std::string& because) {
    ::testing::AssertionResult mapped = fails_with(code, because, [&] { Checkpoint::open(path()); });
    return mapped ? fails_with(code, because, [&] { Checkpoint::open(path(), Checkpoint::Access::kRead); }) : mapped;
  }

 private:
  TempDir folder_;
};

TEST(Checkpoint, OpensTheBundledModelEitherWay) {
  const Checkpoint mapped = Checkpoint::open(testing::tiny_k3_dir());
  const Checkpoint plain = Checkpoint::open(testing::tiny_k3_dir(), Checkpoint::Access::kRead);
  EXPECT_EQ(mapped.shards().size(), 8u);
  EXPECT_EQ(mapped.total_tensor_bytes(), 16264960u);
  ASSERT_EQ(mapped.tensors().size(), plain.tensors().size());
  for (const TensorRef& tensor : mapped.tensors()) {
    const TensorView view = mapped.view(tensor);
    const std::vector<std::byte> bytes = plain.read_all(plain.at(tensor.info.name));
    ASSERT_TRUE(std::equal(view.data.begin(), view.data.end(), bytes.begin(), bytes.end())) << tensor.info.name;
  }
}

TEST_F(DamagedCheckpoint, UndamagedItOpens) {
  const Checkpoint checkpoint = Checkpoint::open(path());
  EXPECT_THAT(checkpoint.shards(), ElementsAre("s1", "s2"));
  EXPECT_EQ(checkpoint.total_tensor_bytes(), 19u);
  ASSERT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.tensors()[0].info.name, "a");
  EXPECT_EQ(checkpoint.at("c").shard, 1u);
  EXPECT_EQ(checkpoint.find("d"), nullptr);
  EXPECT_TRUE(fails_with(ErrorCode::kNotFound, "no tensor d", [&] { checkpoint.at("d"); }));
  EXPECT_EQ(checkpoint.header(0).tensors[0].name, "b");  // file order
  EXPECT_EQ(text_of(checkpoint.view(checkpoint.at("a")).data), "aaaaAAAA");
  EXPECT_EQ(text_of(checkpoint.read_all(checkpoint.at("c"))), "cccccccc");
}

TEST_F(DamagedCheckpoint, PartsOfATensorAreReadEitherWay) {
  for (const auto access : {Checkpoint::Access::kMapped, Checkpoint::Access::kRead}) {
    const Checkpoint checkpoint = Checkpoint::open(path(), access);
    std::vector<std::byte> part(3);
    checkpoint.read(checkpoint.at("a"), 3, part);
    EXPECT_EQ(text_of(part), "aAA");
    checkpoint.read(checkpoint.at("a"), 8, {});
  }
}

TEST_F(DamagedCheckpoint, ViewsOutliveAMoveAndNeedAMapping) {
  Checkpoint first = Checkpoint::open(path());
  const TensorView view = first.view(first.at("a"));
  const Checkpoint second = std::move(first);
  EXPECT_EQ(text_of(view.data), "aaaaAAAA");
  const Checkpoint plain = Checkpoint::open(path(), Checkpoint::Access::kRead);
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, "cannot be viewed", [&] { plain.view(plain.at("a")); }));
}

TEST_F(DamagedCheckpoint, ShardsMayBeLinksAsHubCachesStoreThem) {
  fs::create_directory(path() / "blobs");
  fs::rename(path() / "s1", path() / "blobs/0123");
  fs::create_symlink("blobs/0123", path() / "s1");
  EXPECT_EQ(Checkpoint::open(path()).tensors().size(), 3u);
}

TEST_F(DamagedCheckpoint, MissingShard) {
  fs::remove(path() / "s2");
  EXPECT_TRUE(refused(ErrorCode::kNotFound, "shard 2 of 2 is missing: s2"));
}

TEST_F(DamagedCheckpoint, DanglingLinkOfAShard) {
  fs::remove(path() / "s2");
  fs::create_symlink("gone", path() / "s2");
  EXPECT_TRUE(refused(ErrorCode::kNotFound, "s2"));
}

TEST_F(DamagedCheckpoint, TruncatedAndLengthenedShard) {
  fs::resize_file(path() / "s1", fs::file_size(path() / "s1") - 1);
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "it is truncated"));
  fs::resize_file(path() / "s1", fs::file_size(path() / "s1") + 2);
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "after the last tensor"));
  fs::resize_file(path() / "s1", 0);
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "too few"));
}

TEST_F(DamagedCheckpoint, IndexNamesATensorNoShardHas) {
  RawShards claimed = two_shards();
  claimed["s2"].push_back({"bb", "U8", {0}, ""});  // between b and c
  claim(claimed);
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "bb is not in s2 as the index says"));
  claimed = two_shards();
  claimed["s2"].push_back({"d", "U8", {0}, ""});  // after the last
  claim(claimed);
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "d is not in s2 as the index says"));
}

TEST_F(DamagedCheckpoint, ShardHoldsATensorTheIndexDoesNotName) {
  for (const std::string name : {"a", "b"}) {
    RawShards claimed = two_shards();
    std::erase_if(claimed["s1"], [&](const auto& tensor) { return tensor.name == name; });
    claim(claimed);
    EXPECT_TRUE(refused(ErrorCode::kCorrupt, name + " of s1 is not in the index"));
  }
  RawShards shards = two_shards();
  shards["s2"].push_back({"z", "U8", {1}, "z"});
  testing::write_raw_checkpoint(path(), shards);
  claim(two_shards());
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "z of s2 is not in the index"));
}

TEST_F(DamagedCheckpoint, IndexNamesTheWrongShard) {
  RawShards claimed = two_shards();
  claimed["s2"].push_back(claimed["s1"].back());
  claimed["s1"].pop_back();
  claim(claimed);
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "a is in s1, the index says s2"));
}

TEST_F(DamagedCheckpoint, OneTensorInTwoShards) {
  RawShards shards = two_shards();
  shards["s2"].push_back(shards["s1"].front());
  testing::write_raw_checkpoint(path(), shards);
  claim(two_shards());
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "tensor b is in two shards, s1 and s2"));
}

TEST_F(DamagedCheckpoint, WrongTotalSize) {
  std::string index = testing::read_text(path() / kIndex);
  testing::write_text(path() / kIndex, index.replace(index.find(":19}"), 4, ":20}"));
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "total_size is 20, the tensors have 19 bytes"));
}

TEST_F(DamagedCheckpoint, ASecondModelBesideTheIndexIsRefused) {
  testing::write_text(path() / "model.safetensors", testing::raw_safetensors({{"x", "U8", {1}, "x"}}));
  EXPECT_TRUE(refused(ErrorCode::kCorrupt, "model.safetensors is here but"));
}

TEST_F(DamagedCheckpoint, AFolderInPlaceOfAShard) {
  fs::remove(path() / "s2");
  fs::create_directory(path() / "s2");
  EXPECT_TRUE(refused(ErrorCode::kUnsupported, "not a regular file"));
}

TEST_F(DamagedCheckpoint, AShardThatShrinksAfterOpeningIsAnErrorOfThatRead) {
  const Checkpoint checkpoint = Checkpoint::open(path(), Checkpoint::Access::kRead);
  fs::resize_file(path() / "s1", fs::file_size(path() / "s1") - 4);
  EXPECT_EQ(text_of(checkpoint.read_all(checkpoint.at("b"))), "bbb");
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "shorter now", [&] { checkpoint.read_all(checkpoint.at("a")); }));
}

TEST(Checkpoint, OneFileWithoutAnIndexIsACheckpoint) {
  const TempDir folder;
  testing::write_text(folder.path() / "model.safetensors", testing::raw_safetensors({{"x", "U8", {1}, "x"}}));
  EXPECT_THAT(Checkpoint::open(folder.path()).shards(), ElementsAre("model.safetensors"));
  EXPECT_EQ(Checkpoint::open(folder.path()).at("x").info.size(), 1u);
}

TEST(Checkpoint, NothingToOpen) {
  const TempDir folder;
  EXPECT_TRUE(fails_with(ErrorCode::kNotFound, "neither", [&] { Checkpoint::open(folder.path()); }));
  EXPECT_TRUE(fails_with(ErrorCode::kNotFound, "not a folder", [&] { Checkpoint::open(folder.path() / "no"); }));
}

}  // namespace
}  // namespace trefoil
