#include "stream/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/parallel.h"
#include "base/splitmix64.h"
#include "stream/direct_alignment.h"
#include "stream/faulty_test_backend.h"
#include "support/expect_error.h"
#include "support/packed_checkpoint.h"
#include "support/shard_edit.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::fails_with;
using testing::FaultyDrive;
using ::testing::HasSubstr;
using testing::ReadFault;
using testing::TempDir;

constexpr double kWaitLimit = 60;  // a hang is a failure with a message, long before a test's own limit
constexpr int64_t kLayers = 3;     // the first is dense
constexpr int32_t kExperts = 8;

std::vector<int32_t> ids(std::initializer_list<int32_t> list) {
  return list;
}
std::vector<int32_t> all_experts() {
  std::vector<int32_t> all(kExperts);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class ExpertStoreTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TempDir;
    testing::write_cut_model(source(), kLayers, kExperts);
  }
  static void TearDownTestSuite() { delete std::exchange(shared_, nullptr); }
  static fs::path source() { return shared_->path() / "source"; }

  static ExpertLayout layout_of(const std::vector<fs::path>& folders) {
    std::vector<std::shared_ptr<const Checkpoint>> copies;
    for (const fs::path& folder : folders)
      copies.push_back(std::make_shared<const Checkpoint>(Checkpoint::open(folder, Checkpoint::Access::kRead)));
    return {copies, parse_model_config(testing::read_text(folders[0] / "config.json"), "config.json")};
  }
  static uint64_t slot_bytes() {
    static const uint64_t bytes = layout_of({source()}).summary().slot_bytes;
    return bytes;
  }
  static ExpertStoreOptions options_of(int64_t slots, ReadMode mode = ReadMode::kBuffered) {
    ExpertStoreOptions options;
    options.budget_bytes = static_cast<uint64_t>(slots) * slot_bytes();
    options.wait_limit_seconds = kWaitLimit;
    options.reader.mode = mode;
    options.reader.depth = 4;
    return options;
  }
  // A store over the test's own drive. A call of a plan is a whole expert: they are contiguous here, and buffered.
  std::unique_ptr<ExpertStore> open_faulty(int64_t slots, FaultyDrive::Plan plan, double wait_limit = kWaitLimit,
                                           int64_t passing = 0) {
    drives_.emplace_back(std::move(plan));
    ExpertStoreOptions options = options_of(slots);
    options.wait_limit_seconds = wait_limit;
    options.passing_slots = passing;
    options.reader.make_backend = [drive = &drives_.back()](int depth) { return drive->make(depth); };
    return std::make_unique<ExpertStore>(layout_of({source()}), options);
  }
  FaultyDrive& drive() { return drives_.back(); }

  static std::vector<float> decoded(const StoredMatrix& matrix) {
    std::vector<float> out(static_cast<size_t>(matrix.linear->out_features * matrix.linear->in_features));
    decode_stored(matrix, 0, matrix.linear->out_features, out);
    return out;
  }
  // Against what the checkpoint itself decodes.
  static void expect_right(const ExpertLease& lease, const Checkpoint& checkpoint) {
    for (const ExpertMatrix which : {ExpertMatrix::kW1, ExpertMatrix::kW2, ExpertMatrix::kW3}) {
      const StoredLinear linear =
          resolve_linear(checkpoint, fmt::format("language_model.model.layers.{}.block_sparse_moe.experts.{}.w{}",
                                                 lease.layer(), lease.expert(), static_cast<int>(which) + 1));
      std::vector<float> expected(static_cast<size_t>(linear.out_features * linear.in_features));
      decode_linear(checkpoint, linear, 0, linear.out_features, expected);
      ASSERT_EQ(decoded(lease.matrix(which)), expected) << linear.module;
    }
  }
  static const Checkpoint& checkpoint() {
    static const Checkpoint opened = Checkpoint::open(source());
    return opened;
  }
  // The whole step, checked; the experts in the order in which they came.
  static std::vector<int64_t> run_step(ExpertStore& store, int64_t layer, const std::vector<int32_t>& experts) {
    std::vector<int64_t> order;
    ExpertStore::Batch batch = store.begin(layer, experts);
    while (batch.remaining() > 0) {
      const ExpertLease lease = batch.next();
      EXPECT_EQ(lease.layer(), layer);
      expect_right(lease, checkpoint());
      order.push_back(lease.expert());
    }
    std::vector<int64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, std::vector<int64_t>(experts.begin(), experts.end()));
    return order;
  }

  static TempDir* shared_;
  std::deque<FaultyDrive> drives_;  // outlive their stores
};
TempDir* ExpertStoreTest::shared_ = nullptr;

// ---- right bytes ----

TEST_F(ExpertStoreTest, EveryBackendAndStorageGivesTheCheckpointsValues) {
  std::vector<fs::path> folders = {source()};
  for (const auto& [bits, packing] :
       {std::pair{3, PackedLayout::kDense}, std::pair{3, PackedLayout::kPadded}, std::pair{4, PackedLayout::kDense}}) {
    folders.push_back(shared_->path() / fmt::format("{}-{}", bits, to_string(packing)));
    PackQuantizedSpec spec;
    spec.num_bits = bits;
    spec.layout = packing;
    testing::write_rtn_checkpoint(source(), folders.back(), spec);
  }
  for (const fs::path& folder : folders) {
    const Checkpoint stored = Checkpoint::open(folder);
    for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kPreadDirect, ReadMode::kBuffered}) {
      ExpertStoreOptions options = options_of(0, mode);
      options.budget_bytes = 5 * layout_of({folder}).summary().slot_bytes;
      ExpertStore store(layout_of({folder}), options);
      for (int round = 0; round < 2; ++round) {
        for (int64_t layer = 1; layer < kLayers; ++layer) {
          ExpertStore::Batch batch = store.begin(layer, all_experts());
          while (batch.remaining() > 0) expect_right(batch.next(), stored);
        }
      }
      EXPECT_THAT(store.report(), HasSubstr("bytes an expert"));
    }
  }
}

TEST_F(ExpertStoreTest, SeveralFoldersServeTheirShares) {
  const fs::path copy = shared_->path() / "copy";
  fs::copy(source(), copy);
  ExpertStore store(layout_of({source(), copy}), options_of(4));
  run_step(store, 1, all_experts());
  // The odd experts are read from the copy alone.
  for (const auto& entry : fs::directory_iterator(copy)) {
    if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), 0);
  }
  ExpertStore::Batch batch = store.begin(2, ids({2, 3}));
  expect_right(batch.get(2), checkpoint());
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "layer 2 expert 3: " + copy.string(), [&] { batch.get(3); }));
}

// ---- order, hits, counters ----

TEST_F(ExpertStoreTest, ResidentExpertsComeFirst) {
  const auto store = open_faulty(16, [](int, const ReadOperation&) { return ReadFault(); });
  run_step(*store, 1, ids({5, 6}));
  const std::vector<int64_t> order = run_step(*store, 1, ids({0, 1, 5, 6, 7}));
  // In which order among themselves is nobody's promise.
  EXPECT_THAT(std::vector<int64_t>(order.begin(), order.begin() + 2), ::testing::UnorderedElementsAre(5, 6));
}

TEST_F(ExpertStoreTest, CountersAreExactOnAScriptedTrace) {
  const uint64_t one = layout_of({source()}).summary().tensor_bytes;
  const auto store = open_faulty(
      8, [](int n, const ReadOperation&) { return ReadFault{.is_late = n == 4}; }, kWaitLimit, 4);
  run_step(*store, 1, ids({0, 1}));  // reads 0 and 1; both stay: there is room for four residents
  EXPECT_EQ(store->counters().misses, 2u);
  run_step(*store, 1, ids({0, 2}));  // a hit, and read 2
  store->expect(2, ids({3}));        // read 3 ends before its step
  while (store->counters().under_way > 0) std::this_thread::yield();
  store->expect(2, ids({4}));  // read 4 is late
  ExpertStore::Batch batch = store->begin(2, ids({3, 4, 5}));
  EXPECT_EQ(batch.next().expert(), 3);
  drive().release();
  while (batch.remaining() > 0) batch.next();
  const ExpertStoreCounters counters = store->counters();
  EXPECT_EQ(counters.hits, 2u);
  EXPECT_EQ(counters.hinted_hits, 1u);
  EXPECT_EQ(counters.late_hits, 1u);
  EXPECT_EQ(counters.misses, 4u);
  EXPECT_EQ(counters.hints, 2u);
  EXPECT_EQ(counters.hints_dropped, 0u);
  EXPECT_EQ(counters.reads, 6u);
  EXPECT_EQ(counters.bytes_hinted, 2 * one);
  EXPECT_EQ(counters.bytes_read, 6 * one);
  EXPECT_EQ(counters.bytes_used, 6 * one);
  EXPECT_EQ(counters.evictions, 0u);
  EXPECT_EQ(counters.failures, 0u);
  EXPECT_GT(counters.wait_seconds, 0);
  EXPECT_GT(counters.read_seconds, 0);
}

TEST_F(ExpertStoreTest, AWrongHintIsCountedAndLosesItsClaim) {
  const uint64_t one = layout_of({source()}).summary().tensor_bytes;
  const auto store = open_faulty(
      4, [](int, const ReadOperation&) { return ReadFault(); }, kWaitLimit, 4);
  store->expect(1, ids({0, 1, 2, 3}));
  while (store->counters().under_way > 0) std::this_thread::yield();
  store->expect(2, ids({0}));  // the slots are all claimed
  EXPECT_EQ(store->counters().hints_dropped, 1u);
  run_step(*store, 1, ids({0, 7}));  // 7 takes a slot of a hint
  store->expect(2, ids({0, 1, 2}));  // the two used ones, and one that was hinted for the step that is over
  EXPECT_EQ(store->counters().hints_dropped, 1u);
  run_step(*store, 2, ids({0, 1, 2}));
  const ExpertStoreCounters counters = store->counters();
  EXPECT_EQ(counters.bytes_hinted, 7 * one);
  EXPECT_EQ(counters.bytes_read, 8 * one);
  EXPECT_EQ(counters.bytes_used, 5 * one);
  EXPECT_EQ(counters.evictions, 4u);
}

TEST_F(ExpertStoreTest, AHintWhoseReadHasNotBegunIsCanceledByItsStep) {
  const auto store = open_faulty(8, [](int n, const ReadOperation&) { return ReadFault{.is_late = n < 2}; });
  store->expect(1, ids({0, 1, 2, 3}));  // half of the depth begins
  ExpertStore::Batch batch = store->begin(1, ids({3, 4}));
  const ExpertStoreCounters counters = store->counters();
  EXPECT_EQ(counters.hints, 4u);
  EXPECT_EQ(counters.hints_canceled, 1u);  // 2: 0 and 1 had begun, 3 is needed
  EXPECT_EQ(counters.late_hits, 0u);
  EXPECT_EQ(counters.misses, 2u);
  while (batch.remaining() > 0) expect_right(batch.next(), checkpoint());
}

// ---- a budget smaller than a step ----

TEST_F(ExpertStoreTest, ABudgetOfTwoExpertsWorksThroughAnyStep) {
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kBuffered}) {
    ExpertStore store(layout_of({source()}), options_of(2, mode));
    for (int round = 0; round < 3; ++round) {
      for (int64_t layer = 1; layer < kLayers; ++layer) run_step(store, layer, all_experts());
    }
    EXPECT_LE(store.memory_bytes(), 2 * slot_bytes());
  }
}

TEST_F(ExpertStoreTest, AnyOrderOfGettingWorksWithinTwoSlots) {
  ExpertStore store(layout_of({source()}), options_of(2));
  ExpertStore::Batch batch = store.begin(1, all_experts());
  for (const int32_t expert : {7, 0, 5, 6, 1, 4, 2, 3}) {
    const ExpertLease lease = batch.get(expert);
    EXPECT_EQ(lease.expert(), expert);
    expect_right(lease, checkpoint());
  }
}

TEST_F(ExpertStoreTest, ABudgetBelowTwoExpertsIsRefusedWithNumbers) {
  ExpertStoreOptions options = options_of(2);
  options.budget_bytes -= 1;
  EXPECT_TRUE(fails_with(ErrorCode::kOverBudget, format_count(2 * slot_bytes()) + " bytes",
                         [&] { ExpertStore(layout_of({source()}), options); }));
  ExpertStore store(layout_of({source()}), options_of(3));
  EXPECT_TRUE(fails_with(ErrorCode::kOverBudget, "holds 1 experts of", [&] { store.set_budget(slot_bytes()); }));
  EXPECT_EQ(store.max_slots(), 3);
}

TEST_F(ExpertStoreTest, LeasesThatHoldEverySlotAreAnErrorWithNumbers) {
  const auto store = open_faulty(
      2, [](int, const ReadOperation&) { return ReadFault(); }, 0.2);
  ExpertStore::Batch batch = store->begin(1, ids({0, 1, 2}));
  {
    const ExpertLease a = batch.next(), b = batch.next();
    EXPECT_TRUE(fails_with(ErrorCode::kOverBudget,
                           "layer 1 expert 2: no slot came free in 0.2 s: the budget holds 2, 2",
                           [&] { batch.next(); }));
  }
  expect_right(batch.next(), checkpoint());
}

// ---- faults ----

TEST_F(ExpertStoreTest, TheNthFailedReadFailsItsExpertAndNothingElse) {
  for (int bad = 0; bad < kExperts; ++bad) {
    const auto store =
        open_faulty(4, [bad](int n, const ReadOperation&) { return n == bad ? ReadFault{.error = EIO} : ReadFault(); });
    ExpertStore::Batch batch = store->begin(1, all_experts());
    std::set<int64_t> seen;
    int failed = 0;
    while (batch.remaining() > 0) {
      try {
        const ExpertLease lease = batch.next();
        expect_right(lease, checkpoint());
        seen.insert(lease.expert());
      } catch (const Error& error) {
        ++failed;
        EXPECT_EQ(error.code(), ErrorCode::kIo);
        EXPECT_THAT(error.what(), AllOf(HasSubstr("layer 1 expert "), HasSubstr(".safetensors: "),
                                        HasSubstr("bytes wanted at offset"), HasSubstr("Input/output error")));
      }
    }
    EXPECT_EQ(failed, 1);
    EXPECT_EQ(seen.size(), static_cast<size_t>(kExperts - 1));
    EXPECT_EQ(store->counters().failures, 1u);
    run_step(*store, 1, all_experts());  // and now it is read
    run_step(*store, 2, all_experts());
  }
}

TEST_F(ExpertStoreTest, GetOfAFailedExpertThrowsOnlyForIt) {
  const auto store =
      open_faulty(8, [](int n, const ReadOperation&) { return n == 1 ? ReadFault{.error = EIO} : ReadFault(); });
  ExpertStore::Batch batch = store->begin(1, ids({2, 4, 6}));
  expect_right(batch.get(6), checkpoint());
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "layer 1 expert 4", [&] { batch.get(4); }));
  expect_right(batch.get(2), checkpoint());
  EXPECT_EQ(batch.remaining(), 0);
}

TEST_F(ExpertStoreTest, ShortReadsAreContinued) {
  const auto store = open_faulty(4, [](int, const ReadOperation&) { return ReadFault{.at_most = 1000}; });
  run_step(*store, 1, all_experts());
  EXPECT_GT(store->counters().reads, 100u);
  EXPECT_EQ(store->counters().failures, 0u);
}

TEST_F(ExpertStoreTest, ALateReadIsWaitedForAndNotForEver) {
  const auto store = open_faulty(
      4, [](int n, const ReadOperation&) { return ReadFault{.is_late = n == 0}; }, 0.2);
  ExpertStore::Batch batch = store->begin(1, ids({0, 1}));
  EXPECT_EQ(batch.next().expert(), 1);
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "the read has not come back in 0.2 s", [&] { batch.next(); }));
  drive().release();
  expect_right(batch.next(), checkpoint());  // it came after all
}

TEST_F(ExpertStoreTest, AFileThatShrinksIsAnErrorAndNeverOldBytes) {
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kBuffered}) {
    TempDir folder;
    testing::write_cut_model(folder.path(), kLayers, kExperts);
    ExpertStore store(layout_of({folder.path()}), options_of(3, mode));
    run_step(store, 1, all_experts());
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), 100);
    }
    ExpertStore::Batch batch = store.begin(2, all_experts());
    for (int i = 0; i < kExperts; ++i) EXPECT_TRUE(fails_with(ErrorCode::kIo, "is shorter now", [&] { batch.next(); }));
    EXPECT_EQ(store.counters().failures, static_cast<uint64_t>(kExperts));
  }
}

TEST_F(ExpertStoreTest, AbandonedStepsAndLivingLeasesKeepWhatTheyNeed) {
  std::vector<ExpertLease> leases;
  {
    ExpertStore store(layout_of({source()}), options_of(8));
    { const ExpertStore::Batch abandoned = store.begin(1, all_experts()); }
    ExpertStore::Batch batch = store.begin(2, ids({1, 3}));
    leases.push_back(batch.next());
    leases.push_back(leases[0]);
  }
  expect_right(leases[1], checkpoint());
}

// ---- many threads ----

// Leases wander to other threads and are checked there while the consumer goes on, the budget shrinks and grows, hints
// are right and wrong, reads fail: whatever is handed out holds the right bytes for as long as it is held.
TEST_F(ExpertStoreTest, StressHoldsPinnedBytesWhileTheBudgetMoves) {
  std::vector<std::vector<float>> expected;
  for (int64_t layer = 1; layer < kLayers; ++layer) {
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      const StoredLinear linear = resolve_linear(
          checkpoint(), fmt::format("language_model.model.layers.{}.block_sparse_moe.experts.{}.w2", layer, expert));
      std::vector<float> out(static_cast<size_t>(linear.out_features * linear.in_features));
      decode_linear(checkpoint(), linear, 0, linear.out_features, out);
      expected.push_back(std::move(out));
    }
  }
  const auto store = open_faulty(6, [](int n, const ReadOperation&) {
    return n % 13 == 12 ? ReadFault{.error = EIO} : n % 5 == 4 ? ReadFault{.at_most = 777} : ReadFault();
  });
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<ExpertLease> queue;
  bool is_over = false;
  std::atomic<int> checked{0}, wrong{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < 3; ++i) {
    workers.emplace_back([&] {
      for (;;) {
        std::unique_lock lock(mutex);
        arrived.wait(lock, [&] { return is_over || !queue.empty(); });
        if (queue.empty()) return;
        const ExpertLease lease = queue.front();
        queue.pop_front();
        lock.unlock();
        const auto& right = expected[static_cast<size_t>((lease.layer() - 1) * kExperts + lease.expert())];
        for (int again = 0; again < 3; ++again) wrong += decoded(lease.matrix(ExpertMatrix::kW2)) == right ? 0 : 1;
        ++checked;
      }
    });
  }
  SplitMix64 random(3);
  int taken = 0, failed = 0;
  for (int step = 0; step < 300; ++step) {
    const int64_t layer = 1 + step % 2;
    std::vector<int32_t> experts, guess;
    for (int32_t expert = 0; expert < kExperts; ++expert) {
      if (random.next() % 2 == 0) experts.push_back(expert);
      if (random.next() % 3 == 0) guess.push_back(expert);
    }
    if (step % 7 == 0) store->set_budget((2 + random.next() % 8) * slot_bytes());
    ExpertStore::Batch batch = store->begin(layer, experts);
    store->expect(3 - layer, guess);
    const bool abandon = step % 11 == 10;
    while (batch.remaining() > (abandon ? 1 : 0)) {
      try {
        ExpertLease lease = batch.next();
        const std::lock_guard lock(mutex);
        queue.push_back(std::move(lease));
        arrived.notify_one();
        ++taken;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kIo) << error.what();
        ++failed;
      }
    }
  }
  {
    const std::lock_guard lock(mutex);
    is_over = true;
  }
  arrived.notify_all();
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(checked, taken);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(failed, 0);
  store->set_budget(2 * slot_bytes());
  EXPECT_LE(store->memory_bytes(), 2 * slot_bytes());
  const ExpertStoreCounters counters = store->counters();
  EXPECT_LE(counters.bytes_used, counters.bytes_read);
  EXPECT_EQ(counters.hits + counters.late_hits + counters.misses >= static_cast<uint64_t>(taken + failed), true);
}

}  // namespace
}  // namespace trefoil
