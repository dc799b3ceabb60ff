// The memory plan and the engine that keeps to it, on the bundled model.
#include "model/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "model/packed_test_copy.h"

namespace trefoil {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kPlenty = uint64_t{4} << 30;

class PlanTest : public ::testing::Test {
 protected:
  MemoryPlan plan(const EngineOptions& options, uint64_t limit = kPlenty) const {
    return plan_memory(config_, *checkpoint_, options, limit);
  }
  std::string refusal(const EngineOptions& options) const {
    try {
      plan(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOverBudget);
      return error.what();
    }
    return "not refused";
  }

  ModelConfig config_ = load_model_config(testing::tiny_k3_dir());
  std::shared_ptr<const Checkpoint> checkpoint_ = testing::open_tiny_k3();
};

EngineOptions with(ExpertPlacement experts, uint64_t memory_bytes) {
  EngineOptions options;
  options.experts = experts;
  options.memory_bytes = memory_bytes;
  options.threads = 2;
  return options;
}

TEST_F(PlanTest, EverythingThatFitsIsInMemory) {
  const MemoryPlan whole = plan(with(ExpertPlacement::kAuto, 0));
  EXPECT_TRUE(whole.experts_in_memory);
  EXPECT_EQ(whole.budget_bytes, kPlenty);
  // 4 layers of 32 experts, three matrices of 192 x 128 in MXFP4 tiles of 1088 bytes for 2048 weights.
  EXPECT_EQ(whole.expert_bytes, 4u * 32 * 3 * 192 * 128 / 2048 * 1088);
  // The exact amount is enough, a byte less is not.
  EXPECT_TRUE(plan(with(ExpertPlacement::kAuto, whole.total_bytes())).experts_in_memory);
  EXPECT_FALSE(plan(with(ExpertPlacement::kAuto, whole.total_bytes() - 1)).experts_in_memory);
}

TEST_F(PlanTest, WhatIsLeftBecomesTheCache) {
  const MemoryPlan whole = plan(with(ExpertPlacement::kAuto, 0));
  const uint64_t rest = whole.total_bytes() - whole.expert_bytes;
  const MemoryPlan half = plan(with(ExpertPlacement::kAuto, rest + whole.expert_bytes / 2));
  EXPECT_FALSE(half.experts_in_memory);
  EXPECT_GT(half.expert_slots, 20);
  EXPECT_LT(half.expert_slots, 4 * 32);
  EXPECT_LE(half.total_bytes(), half.budget_bytes);
  // A cache never has more slots than there are experts.
  EXPECT_EQ(plan(with(ExpertPlacement::kDrive, kPlenty)).expert_slots, 4 * 32);
}

TEST_F(PlanTest, TooLittleIsRefusedWithItsParts) {
  EXPECT_THAT(
      refusal(with(ExpertPlacement::kAuto, 1'000'000)),
      AllOf(HasSubstr("two experts of a cache"), HasSubstr("1.0 MB"), HasSubstr("states"), HasSubstr("in all")));
  const MemoryPlan whole = plan(with(ExpertPlacement::kAuto, 0));
  EXPECT_THAT(refusal(with(ExpertPlacement::kMemory, whole.total_bytes() - 1)), HasSubstr("all routed experts"));
  // A limit of the machine, as a cgroup sets it, is a budget like one that was asked for.
  EXPECT_THROW(plan(with(ExpertPlacement::kAuto, 0), 1'000'000), Error);
}

TEST_F(PlanTest, EveryOptionThatTakesMemoryIsInIt) {
  const EngineOptions base = with(ExpertPlacement::kAuto, 0);
  const MemoryPlan plain = plan(base);
  EngineOptions changed = base;
  changed.context *= 2;
  EXPECT_GT(plan(changed).state_bytes, plain.state_bytes);
  changed = base;
  changed.sequences = 3;
  EXPECT_EQ(plan(changed).state_bytes, 3 * plain.state_bytes);
  changed = base;
  changed.prefill_chunk = 2048;
  EXPECT_GT(plan(changed).scratch_bytes, plain.scratch_bytes);
  changed = base;
  changed.threads = 8;
  EXPECT_GT(plan(changed).scratch_bytes, plain.scratch_bytes);
  changed = base;
  changed.reserved_bytes = 12345;
  EXPECT_EQ(plan(changed).total_bytes(), plain.total_bytes() + 12345);
  changed = base;
  changed.trunk = TrunkForm::kInt8;
  EXPECT_LT(plan(changed).trunk_bytes, plain.trunk_bytes * 3 / 4);
  changed = base;
  for (const int64_t context :
       {int64_t{0}, int64_t{1} << 20, (int64_t{1} << 20) + 1, std::numeric_limits<int64_t>::max()}) {
    changed.context = context;
    if (context == int64_t{1} << 20) {
      EXPECT_GT(plan(changed).state_bytes, plain.state_bytes);  // the model's own limit
    } else {
      EXPECT_THROW(plan(changed), Error) << context;
    }
  }
  changed = base;
  changed.prefill_chunk = std::numeric_limits<int64_t>::max();  // no more than the context is ever run at once
  EXPECT_LT(plan(changed).scratch_bytes, kPlenty);
  changed = base;
  changed.sequences = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(plan(changed), Error);
}

TEST_F(PlanTest, OptionsThatAnotherMakesMeaninglessAreRefused) {
  EngineOptions options = with(ExpertPlacement::kAuto, 0);
  options.numerics = Numerics::kF32;
  EXPECT_NO_THROW(plan(options));  // the default kernels give way
  options.kernels = KernelMode::kFast8;
  EXPECT_THROW(plan(options), Error);
  options = with(ExpertPlacement::kAuto, 0);
  options.trunk = TrunkForm::kInt8;
  EXPECT_NO_THROW(plan(options));
  options.kernels = KernelMode::kReference;
  EXPECT_THROW(plan(options), Error);
}

TEST(Engine, PlansWhatItsWeightsTake) {
  for (const TrunkForm trunk : {TrunkForm::kBf16, TrunkForm::kInt8}) {
    EngineOptions options = with(ExpertPlacement::kMemory, 0);
    options.trunk = trunk;
    const Engine engine(testing::tiny_k3_dir(), options);
    EXPECT_EQ(engine.resident().tile_bytes, engine.plan().expert_bytes);
    EXPECT_EQ(engine.resident().stored_bytes, 0u);
    // Vectors, held as f32, are the rest.
    EXPECT_LT(engine.resident().row_bytes, engine.plan().trunk_bytes);
    EXPECT_GT(engine.resident().row_bytes, engine.plan().trunk_bytes * 9 / 10);
  }
}

TEST(Engine, EveryPlacementAndCopyGivesTheSameBits) {
  const std::vector<int32_t> ids = {521, 1342, 1073, 949, 1671};
  std::vector<float> expected;
  const auto check = [&](const EngineOptions& options, const char* what) {
    Engine engine(testing::tiny_k3_dir(), options);
    SequenceState state = engine.model().new_sequence();
    const std::vector<float> logits = engine.model().forward(ids, state);
    if (expected.empty()) expected = logits;
    ASSERT_EQ(logits.size(), expected.size());
    EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0) << what;
    EXPECT_EQ(engine.stream_report().has_value(), options.experts == ExpertPlacement::kDrive);
  };
  check(with(ExpertPlacement::kMemory, 0), "memory");
  EngineOptions drive = with(ExpertPlacement::kDrive, 0);
  check(drive, "drive");
  for (const char* mode : {"pread", "buffered"}) {
    drive.read_mode = mode;
    check(drive, mode);
  }
  const testing::TempDir folder;
  const fs::path copy = folder.path() / "copy";
  fs::copy(testing::tiny_k3_dir(), copy);
  drive.model_dirs = {copy};
  check(drive, "two drives");
  drive.read_mode = "telepathy";
  EXPECT_THROW(Engine(testing::tiny_k3_dir(), drive), Error);
}

}  // namespace
}  // namespace trefoil
