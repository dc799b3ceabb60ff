#include "model/sequence_snapshot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/sha256.h"
#include "model/model_fingerprint.h"
#include "model/session.h"
#include "model/synthetic_test_model.h"
#include "model/text_model.h"
#include "support/expect_error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using testing::fails_with;

// Written out from docs/formats.md, not from the code: where the fields of a state of the small model begin.
constexpr size_t kVersionAt = 8, kLayersAt = 12, kFingerprintAt = 16, kIdsAt = 80, kLogitsAt = 88, kTableAt = 96;
constexpr size_t kHash = 64;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

void expect_same(const SequenceSnapshot& a, const SequenceSnapshot& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.state.position, b.state.position);
  EXPECT_TRUE(same_bits(a.logits, b.logits));
  ASSERT_EQ(a.state.layers.size(), b.state.layers.size());
  for (size_t l = 0; l < a.state.layers.size(); ++l) {
    const LayerState &x = a.state.layers[l], &y = b.state.layers[l];
    EXPECT_TRUE(same_bits(x.conv_q, y.conv_q) && same_bits(x.conv_k, y.conv_k) && same_bits(x.conv_v, y.conv_v)) << l;
    EXPECT_TRUE(same_bits(x.recurrent, y.recurrent) && same_bits(x.kv, y.kv)) << l;
  }
}

class SequenceSnapshotFile : public ::testing::Test {
 protected:
  SequenceSnapshotFile()
      : pool_(1),
        config_(testing::small_config(5)),
        model_(config_, testing::random_weights(config_, 1), {.numerics = Numerics::kBf16}, pool_),
        shape_(snapshot_shape(model_, std::string(64, 'a'))) {}

  SequenceSnapshot snapshot(int64_t tokens) const {
    Session session(model_);
    session.extend(testing::random_ids(config_, tokens, 3));
    return session.snapshot();
  }

  std::string saved(const SequenceSnapshot& snapshot) const {
    save_snapshot(snapshot, shape_, path());
    return testing::read_text(path());
  }
  SequenceSnapshot loaded(const std::string& bytes) const {
    testing::write_text(path(), bytes);
    return load_snapshot(shape_, path());
  }
  // The same with the checksum that its other bytes ask for.
  SequenceSnapshot loaded_with_its_hash(const std::string& bytes) const {
    const std::string body = bytes.substr(0, bytes.size() - kHash);
    return loaded(body + sha256_hex(as_bytes_of(body)));
  }
  template <typename T>
  static std::string with(std::string bytes, size_t at, T value) {
    store(bytes.data() + at, value);
    return bytes;
  }
  std::filesystem::path path() const { return folder_.path() / "state"; }

  testing::TempDir folder_;
  ThreadPool pool_;
  ModelConfig config_;
  Model model_;
  SnapshotShape shape_;
};

TEST_F(SequenceSnapshotFile, GivesBackEveryBit) {
  for (const int64_t tokens : {0, 1, 2, 7}) {
    SequenceSnapshot before = snapshot(tokens);
    if (tokens > 0) {  // what arithmetic on values would lose
      before.state.layers[0].recurrent[0] = -0.0f;
      before.state.layers[0].recurrent[1] = std::bit_cast<float>(0x7FC12345u);
      before.state.layers[0].conv_q[2] = std::numeric_limits<float>::denorm_min();
    }
    expect_same(loaded(saved(before)), before);
  }
}

TEST_F(SequenceSnapshotFile, ValuesThatAreBf16TakeTwoBytes) {
  SequenceSnapshot before = snapshot(4);
  const size_t kv_bytes = 4 * shape_.layers[4].kv_row * sizeof(float);
  const size_t size = saved(before).size();
  before.state.layers[4].kv[5] = std::bit_cast<float>(0x3F800001u);  // one value that is not
  EXPECT_EQ(saved(before).size(), size + kv_bytes / 2);
  expect_same(loaded(saved(before)), before);
}

TEST_F(SequenceSnapshotFile, EveryCutAndEveryByteMoreIsRefused) {
  const std::string bytes = saved(snapshot(2));
  for (size_t size = 0; size < bytes.size(); size += size < 700 ? 1 : 997) {
    EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, path().string(), [&] { loaded(bytes.substr(0, size)); })) << size;
  }
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "by its own counts", [&] { loaded(bytes + "a"); }));
}

TEST_F(SequenceSnapshotFile, AFlippedBitIsRefused) {
  const std::string bytes = saved(snapshot(2));
  for (size_t at = 0; at < bytes.size(); at += at < 700 ? 1 : 499) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_THROW(loaded(damaged), Error) << at;
  }
}

TEST_F(SequenceSnapshotFile, HostileSizesAreRefusedByName) {
  const std::string bytes = saved(snapshot(2));
  const auto refused = [&](ErrorCode code, const std::string& part, const std::string& changed) {
    EXPECT_TRUE(fails_with(code, part, [&] { loaded_with_its_hash(changed); }));
  };
  expect_same(loaded_with_its_hash(bytes), snapshot(2));
  refused(ErrorCode::kUnsupported, "version 2, expected 1", with(bytes, kVersionAt, uint32_t{2}));
  refused(ErrorCode::kCorrupt, "4 layers, expected 5", with(bytes, kLayersAt, uint32_t{4}));
  refused(ErrorCode::kCorrupt, "tokens, expected at most 4096", with(bytes, kIdsAt, ~uint64_t{0}));
  refused(ErrorCode::kCorrupt, "tokens, expected at most 4096", with(bytes, kIdsAt, uint64_t{1} << 62));
  refused(ErrorCode::kCorrupt, "array 4 of layer 3, expected 54", with(bytes, kIdsAt, uint64_t{3}));
  refused(ErrorCode::kCorrupt, "62 logits, expected 61", with(bytes, kLogitsAt, uint64_t{62}));
  refused(ErrorCode::kCorrupt, "floats in array 0 of layer 0", with(bytes, kTableAt, uint64_t{1} << 61));
  refused(ErrorCode::kCorrupt, "expected 0 or 1", with(bytes, kTableAt + 8, uint32_t{2}));
  refused(ErrorCode::kCorrupt, "expected 0", with(bytes, kTableAt + 12, uint32_t{1}));
  const size_t first_id = kTableAt + size_t{5} * 5 * 16;
  refused(ErrorCode::kCorrupt, "token 0 is id 61", with(bytes, first_id, int32_t{61}));
  refused(ErrorCode::kCorrupt, "token 1 is id -1", with(bytes, first_id + 4, int32_t{-1}));
}

TEST_F(SequenceSnapshotFile, AnotherModelsStateIsRefusedBeforeItsSizes) {
  std::string bytes = saved(snapshot(2));
  bytes.replace(kFingerprintAt, 64, std::string(64, 'b'));
  const auto load = [&] { loaded_with_its_hash(with(bytes, kLayersAt, uint32_t{93})); };
  EXPECT_TRUE(
      fails_with(ErrorCode::kInvalidArgument, "another model or of other numerics: bbbbbbbbbbbb..., this one", load));
}

TEST_F(SequenceSnapshotFile, ReplacesOnlyItsOwnKind) {
  saved(snapshot(3));
  expect_same(loaded(saved(snapshot(2))), snapshot(2));
  for (const char* content : {"", "TREFSE", "a letter that was written with care"}) {
    testing::write_text(path(), content);
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "something else", [&] { saved(snapshot(1)); }));
    EXPECT_EQ(testing::read_text(path()), content);
  }
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "something else", [&] { check_snapshot_place(folder_.path()); }));
  EXPECT_TRUE(
      fails_with(ErrorCode::kNotFound, "no such folder", [&] { check_snapshot_place(folder_.path() / "no/state"); }));
}

TEST_F(SequenceSnapshotFile, AMissingFileIsNotFound) {
  EXPECT_TRUE(fails_with(ErrorCode::kNotFound, path().string(), [&] { load_snapshot(shape_, path()); }));
}

TEST(ModelFingerprint, KnowsNumericsFormsDimensionsNamesAndValues) {
  const Checkpoint checkpoint = Checkpoint::open(testing::tiny_k3_dir());
  const ModelConfig config = load_model_config(testing::tiny_k3_dir());
  const ForwardOptions options;
  const std::string own = model_fingerprint(config, checkpoint, options, TrunkForm::kBf16);
  EXPECT_EQ(own.size(), 64u);
  EXPECT_EQ(model_fingerprint(config, Checkpoint::open(testing::tiny_k3_dir(), Checkpoint::Access::kRead), options,
                              TrunkForm::kBf16),
            own);
  EXPECT_NE(model_fingerprint(config, checkpoint, {.numerics = Numerics::kF32}, TrunkForm::kBf16), own);
  EXPECT_NE(model_fingerprint(config, checkpoint, {.mla = MlaForm::kAbsorbed}, TrunkForm::kBf16), own);
  EXPECT_NE(model_fingerprint(config, checkpoint, {.kernels = KernelMode::kFast8}, TrunkForm::kBf16), own);
  EXPECT_NE(model_fingerprint(config, checkpoint, options, TrunkForm::kInt8), own);
  ModelConfig other = config;
  other.rms_norm_eps *= 1.0000001;
  EXPECT_NE(model_fingerprint(other, checkpoint, options, TrunkForm::kBf16), own);

  const testing::TempDir copy;  // the same headers, other values
  for (const auto& file : std::filesystem::directory_iterator(testing::tiny_k3_dir()))
    std::filesystem::copy_file(file, copy.path() / file.path().filename());
  const auto shard = copy.path() / checkpoint.shards()[2];
  std::string bytes = testing::read_text(shard);
  const uint64_t data = checkpoint.header(2).data_start;
  for (size_t at = data; at < bytes.size(); ++at) bytes[at] = static_cast<char>(bytes[at] ^ 1);
  testing::write_text(shard, bytes);
  EXPECT_NE(model_fingerprint(config, Checkpoint::open(copy.path()), options, TrunkForm::kBf16), own);
}

}  // namespace
}  // namespace trefoil
