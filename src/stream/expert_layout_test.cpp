#include "stream/expert_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "stream/direct_alignment.h"
#include "support/expect_error.h"
#include "support/packed_checkpoint.h"
#include "support/raw_checkpoint.h"
#include "support/shard_edit.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

namespace fs = std::filesystem;
using testing::fails_with;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TempDir;

ModelConfig config_of(const fs::path& folder) {
  return parse_model_config(testing::read_text(folder / "config.json"), "config.json");
}

std::shared_ptr<const Checkpoint> open(const fs::path& folder) {
  return std::make_shared<const Checkpoint>(Checkpoint::open(folder, Checkpoint::Access::kRead));
}

// A slot as a reader would fill it: the files' bytes at the extents' places, everything else 0xEE.
std::vector<std::byte> filled_slot(const ExpertLayout& layout, int64_t key) {
  std::vector<std::byte> slot(layout.summary().slot_bytes, std::byte{0xEE});
  const std::vector<fs::path> files = layout.files();
  for (const FileExtent& extent : layout.place(key).extents) {
    const InputFile file(files[layout.file(key, extent)]);
    file.read_at(extent.offset,
                 MutableBytes(slot).subspan(extent.slot_offset + extent.offset % kDirectAlignment, extent.size));
  }
  return slot;
}

void expect_decodes_as_the_checkpoint(const fs::path& folder) {
  const auto checkpoint = open(folder);
  const ExpertLayout layout({checkpoint}, config_of(folder));
  for (int64_t key = 0; key < layout.num_keys(); ++key) {
    const std::vector<std::byte> slot = filled_slot(layout, key);
    for (const ExpertMatrix which : {ExpertMatrix::kW1, ExpertMatrix::kW2, ExpertMatrix::kW3}) {
      const StoredMatrix matrix = layout.matrix(key, which, slot);
      const StoredLinear& linear = *matrix.linear;
      EXPECT_THAT(linear.module,
                  HasSubstr(fmt::format("layers.{}.block_sparse_moe.experts.{}.w{}", layout.layer_of(key),
                                        layout.expert_of(key), static_cast<int>(which) + 1)));
      std::vector<float> got(static_cast<size_t>(linear.out_features * linear.in_features)), expected(got.size());
      decode_stored(matrix, 0, linear.out_features, got);
      decode_linear(*checkpoint, linear, 0, linear.out_features, expected);
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << linear.module;
    }
  }
}

class ExpertLayoutTest : public ::testing::Test {
 protected:
  void SetUp() override { testing::write_cut_model(source(), 3, 4); }
  fs::path source() const { return folder_.path() / "source"; }
  fs::path packed(int bits, PackedLayout layout) const {
    const fs::path folder = folder_.path() / fmt::format("{}-{}", bits, to_string(layout));
    PackQuantizedSpec spec;
    spec.num_bits = bits;
    spec.layout = layout;
    testing::write_rtn_checkpoint(source(), folder, spec);
    return folder;
  }
  TempDir folder_;
};

TEST_F(ExpertLayoutTest, EveryStorageDecodesFromItsSlot) {
  expect_decodes_as_the_checkpoint(source());  // MXFP4
  expect_decodes_as_the_checkpoint(packed(3, PackedLayout::kDense));
  expect_decodes_as_the_checkpoint(packed(3, PackedLayout::kPadded));
  expect_decodes_as_the_checkpoint(packed(4, PackedLayout::kDense));
}

TEST_F(ExpertLayoutTest, KeysAreLayersAndExperts) {
  const ExpertLayout layout({open(source())}, config_of(source()));
  EXPECT_EQ(layout.num_keys(), 2 * 4);  // the first layer is dense
  EXPECT_EQ(layout.key(1, 0), 0);
  EXPECT_EQ(layout.key(2, 3), 7);
  EXPECT_EQ(layout.layer_of(7), 2);
  EXPECT_EQ(layout.expert_of(7), 3);
  EXPECT_EQ(layout.name(7), "layer 2 expert 3");
}

// Six tensors, one behind the other, each a whole number of pages: design D1 at widths like Kimi-K3's, in the small.
TEST_F(ExpertLayoutTest, ContiguousPagesAreOneAlignedRead) {
  constexpr int64_t kPage = 4096;
  TempDir folder;
  std::vector<testing::RawTensor> tensors;
  std::vector<TensorPlan> plan;
  for (const char* matrix : {"w1", "w2", "w3"}) {
    const std::string module = fmt::format("model.layers.0.block_sparse_moe.experts.0.{}", matrix);
    // 4096 rows of 64 MXFP4 codes: 32 pages; scales 2 pages
    plan.push_back({module + ".weight_packed", DType::kU8, {kPage, 32}});
    plan.push_back({module + ".weight_scale", DType::kU8, {kPage, 2}});
  }
  SafetensorsWriter writer(folder.path() / "model.safetensors", plan, kPage);
  for (const TensorPlan& tensor : plan) {
    const std::vector<std::byte> zeros(static_cast<size_t>(tensor.shape[0] * tensor.shape[1]));
    writer.write(tensor.name, zeros);
  }
  writer.commit();
  ModelConfig config;
  config.num_hidden_layers = 1;
  config.num_experts = 1;
  const ExpertLayout layout({open(folder.path())}, config);
  EXPECT_EQ(layout.place(0).extents.size(), 1u);
  EXPECT_TRUE(layout.summary().is_aligned);
  EXPECT_EQ(layout.summary().slot_bytes, 3u * 34 * kPage);
  EXPECT_EQ(layout.summary().text, "one aligned read of 417,792 bytes an expert");
}

TEST_F(ExpertLayoutTest, SaysWhenReadsAreUnalignedOrSeveral) {
  const ExpertLayout contiguous({open(source())}, config_of(source()));
  EXPECT_THAT(contiguous.summary().text, StartsWith("one unaligned read of "));
  EXPECT_FALSE(contiguous.summary().is_aligned);
  EXPECT_GT(contiguous.summary().slot_bytes, contiguous.summary().tensor_bytes);
}

// Bytes between the tensors are passed over up to a limit, and not beyond it.
TEST_F(ExpertLayoutTest, GapsAreReadThroughOrMakeSeveralReads) {
  for (const int64_t gap : {100, 1000000}) {
    TempDir folder;
    std::vector<testing::RawTensor> tensors;
    for (const char* matrix : {"w1", "w2", "w3"}) {
      const std::string module = fmt::format("model.layers.0.block_sparse_moe.experts.0.{}", matrix);
      tensors.push_back({module + ".weight", "BF16", {8, 32}, std::string(512, matrix[1])});
      tensors.push_back({fmt::format("other.{}", matrix), "U8", {gap}, std::string(static_cast<size_t>(gap), 'x')});
    }
    testing::write_raw_checkpoint(folder.path(), {{"s", tensors}});
    ModelConfig config;
    config.num_hidden_layers = 1;
    config.num_experts = 1;
    const auto checkpoint = open(folder.path());
    const ExpertLayout layout({checkpoint}, config);
    EXPECT_EQ(layout.place(0).extents.size(), gap == 100 ? 1u : 3u);
    EXPECT_EQ(layout.place(0).tensor_bytes, 3u * 512);
    EXPECT_THAT(layout.summary().text, StartsWith(gap == 100 ? "one unaligned read" : "up to 3 unaligned reads"));
    const std::vector<std::byte> slot = filled_slot(layout, 0);
    for (int i = 0; i < 3; ++i) {
      const Bytes weight = layout.matrix(0, static_cast<ExpertMatrix>(i), slot).weight;
      ASSERT_EQ(weight.size(), 512u);
      EXPECT_EQ(weight[0], static_cast<std::byte>('1' + i));
      EXPECT_EQ(weight[511], static_cast<std::byte>('1' + i));
    }
  }
}

TEST_F(ExpertLayoutTest, CopiesShareTheExpertsAndMustBeEqual) {
  const fs::path copy = folder_.path() / "copy";
  fs::copy(source(), copy);
  const ExpertLayout layout({open(source()), open(copy)}, config_of(source()));
  const std::vector<fs::path> files = layout.files();
  for (int64_t key = 0; key < layout.num_keys(); ++key) {
    const fs::path file = files[layout.file(key, layout.place(key).extents[0])];
    EXPECT_EQ(file.parent_path(), key % 2 == 0 ? source() : copy);
  }
  const fs::path other = packed(3, PackedLayout::kDense);
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "is no copy of", [&] {
    ExpertLayout({open(source()), open(other)}, config_of(source()));
  }));
  testing::add_tensor(copy, open(copy)->shards().back(), "extra", "U8", {1}, "x");
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "begin at byte", [&] {
    ExpertLayout({open(source()), open(copy)}, config_of(source()));
  }));
}

}  // namespace
}  // namespace trefoil
