#include "stream/expert_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "stream/drive_reader.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using State = ExpertCache::SlotState;

constexpr uint64_t kSlotBytes = 8192;

class ExpertCacheTest : public ::testing::Test {
 protected:
  static void read(ExpertCache& cache, int64_t key) {
    ExpertCache::Slot* slot = cache.take(key, false);
    ASSERT_NE(slot, nullptr);
    cache.set_ready(*slot);
  }
};

TEST_F(ExpertCacheTest, PassingExpertsLeaveInTheOrderOfTheirUse) {
  ExpertCache cache(kSlotBytes, 3, 3, ResidencyPolicy(100, 100, 0), {});
  for (const int64_t key : {1, 2, 3}) read(cache, key);
  cache.touch(*cache.find(1));
  read(cache, 4);
  EXPECT_EQ(cache.find(2), nullptr);
  EXPECT_NE(cache.find(1), nullptr);
  EXPECT_EQ(cache.evictions(), 1u);
}

TEST_F(ExpertCacheTest, PinnedAndUnreadSlotsAreNeverGivenAway) {
  ExpertCache cache(kSlotBytes, 2, 2, ResidencyPolicy(100, 100, 0), {});
  read(cache, 1);
  cache.pin(*cache.find(1));
  ExpertCache::Slot* reading = cache.take(2, false);
  ASSERT_NE(reading, nullptr);
  EXPECT_EQ(cache.take(3, false), nullptr);
  EXPECT_EQ(cache.take_from_residents(3), nullptr);
  cache.set_ready(*reading);
  EXPECT_EQ(cache.take(3, false), reading);
  EXPECT_EQ(cache.find(2), nullptr);
  EXPECT_NE(cache.find(1), nullptr);
}

TEST_F(ExpertCacheTest, ResidentsStayUntilTheyMustGo) {
  ExpertCache cache(kSlotBytes, 3, 2, ResidencyPolicy(100, 100, 0), {});
  read(cache, 1);
  const std::array<int64_t, 1> step = {1};
  cache.use(step);
  for (int64_t key = 2; key < 20; ++key) read(cache, key);
  EXPECT_NE(cache.find(1), nullptr);
  cache.pin(*cache.find(18));
  cache.pin(*cache.find(19));
  EXPECT_EQ(cache.take(20, false), nullptr);
  EXPECT_NE(cache.take_from_residents(20), nullptr);
  EXPECT_EQ(cache.find(1), nullptr);
  EXPECT_FALSE(cache.policy().is_resident(1));
}

TEST_F(ExpertCacheTest, AHintDoesNotTakeWhatAnotherHintBrought) {
  ExpertCache cache(kSlotBytes, 2, 2, ResidencyPolicy(100, 100, 0), {});
  for (const int64_t key : {1, 2}) {
    ExpertCache::Slot* slot = cache.take(key, true);
    slot->is_hinted = true;
    cache.set_ready(*slot);
  }
  EXPECT_EQ(cache.take(3, true), nullptr);
  cache.touch(*cache.find(2));
  ExpertCache::Slot* slot = cache.take(3, true);  // 2 was used since, 1 still waits for its use
  EXPECT_NE(slot, nullptr);
  EXPECT_EQ(cache.find(2), nullptr);
  cache.set_ready(*slot);
  EXPECT_NE(cache.take(4, false), nullptr);  // what is needed may take them
}

TEST_F(ExpertCacheTest, AFailedReadLeavesNothing) {
  ExpertCache cache(kSlotBytes, 2, 2, ResidencyPolicy(100, 100, 0), {});
  ExpertCache::Slot* slot = cache.take(1, false);
  cache.set_failed(*slot);
  EXPECT_EQ(cache.find(1), nullptr);
  EXPECT_NE(cache.take(1, false), nullptr);
  EXPECT_NE(cache.take(2, false), nullptr);
}

TEST_F(ExpertCacheTest, ShrinkingGivesMemoryBackAndWaitsForPins) {
  int added = 0, removed = 0;
  ExpertCache::Buffers buffers = {.add = [&](MutableBytes) { return added++; }, .remove = [&](int) { ++removed; }};
  ExpertCache cache(kSlotBytes, 10, 2, ResidencyPolicy(100, 100, 0), buffers);
  EXPECT_EQ(cache.memory_bytes(), 0u);
  std::vector<int64_t> keys(10);
  for (int64_t key = 0; key < 10; ++key) {
    keys[static_cast<size_t>(key)] = key;
    read(cache, key);
  }
  cache.use(keys);
  EXPECT_EQ(cache.memory_bytes(), 10 * kSlotBytes);
  EXPECT_EQ(cache.policy().num_resident(), 8);
  for (const int64_t key : {0, 1, 2, 3, 4}) cache.pin(*cache.find(key));
  ExpertCache::Slot* reading = cache.take(50, false);
  cache.set_max_slots(4);
  EXPECT_EQ(cache.memory_bytes(), 6 * kSlotBytes);  // five pinned, one being read
  EXPECT_EQ(removed, 4);
  for (const int64_t key : {0, 1, 2, 3, 4}) EXPECT_NE(cache.find(key), nullptr);
  cache.set_ready(*reading);
  EXPECT_EQ(cache.memory_bytes(), 5 * kSlotBytes);
  cache.unpin(*cache.find(0));
  EXPECT_EQ(cache.memory_bytes(), 4 * kSlotBytes);
  EXPECT_LE(cache.policy().num_resident(), 2);
  // It does not grow back.
  for (const int64_t key : {1, 2, 3, 4}) cache.unpin(*cache.find(key));
  for (int64_t key = 20; key < 60; ++key) {
    read(cache, key);
    const std::array<int64_t, 1> step = {key};
    cache.use(step);
  }
  EXPECT_EQ(cache.memory_bytes(), 4 * kSlotBytes);
  cache.set_max_slots(6);
  EXPECT_EQ(cache.memory_bytes(), 4 * kSlotBytes);  // pages come with reads
  for (int64_t key = 60; key < 70; ++key) read(cache, key);
  EXPECT_EQ(cache.memory_bytes(), 6 * kSlotBytes);
}

uint64_t resident_bytes() {
  uint64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Memory that the system has pinned for reads included.
TEST_F(ExpertCacheTest, ShrinkingGivesPagesBackToTheSystem) {
  constexpr uint64_t kLarge = uint64_t{4} << 20;
  const testing::TempDir folder;
  testing::write_text(folder.path() / "data", "x");
  const auto reader = DriveReader::open({folder.path() / "data"});
  ExpertCache cache(kLarge, 16, 16, ResidencyPolicy(100, 100, 0),
                    {.add = [&](MutableBytes memory) { return reader->add_buffer(memory); },
                     .remove = [&](int buffer) { reader->remove_buffer(buffer); }});
  const uint64_t before = resident_bytes();
  for (int64_t key = 0; key < 16; ++key) {
    ExpertCache::Slot* slot = cache.take(key, false);
    std::fill(slot->memory.bytes().begin(), slot->memory.bytes().end(), std::byte{1});
    cache.set_ready(*slot);
  }
  const uint64_t full = resident_bytes();
  EXPECT_GE(full, before + 15 * kLarge);
  cache.set_max_slots(2);
  EXPECT_LE(resident_bytes(), full - 13 * kLarge);
}

}  // namespace
}  // namespace trefoil
