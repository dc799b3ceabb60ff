#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace trefoil {
namespace {

TEST(ThreadPool, VisitsEveryItemOnceAndCanBeUsedAgain) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::atomic<int>> visits(97);
    pool.parallel_for(97, [&](int64_t i) { visits[static_cast<size_t>(i)]++; });
    for (const auto& v : visits) ASSERT_EQ(v.load(), 1);
  }
}

TEST(ThreadPool, RangesTileTheWhole) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> visits(10);
  pool.parallel_ranges(10, 4, [&](int64_t begin, int64_t end) {
    EXPECT_LE(end - begin, 4);
    for (int64_t i = begin; i < end; ++i) visits[static_cast<size_t>(i)]++;
  });
  for (const auto& v : visits) EXPECT_EQ(v.load(), 1);
}

TEST(ThreadPool, RethrowsTheLowestFailureAndSurvives) {
  ThreadPool pool(4);
  for (int round = 0; round < 20; ++round) {
    try {
      pool.parallel_for(64, [](int64_t i) {
        if (i % 10 == 3) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "expected a throw";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "3");
    }
  }
  int sum = 0;
  ThreadPool(1).parallel_for(5, [&](int64_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 10);
}

TEST(ThreadPool, NothingToDoIsNotAnError) {
  ThreadPool(2).parallel_for(0, [](int64_t) { FAIL(); });
  EXPECT_GE(usable_cpus(), 1);
}

// Several jobs on one machine, each bound to its share of the CPUs, must not all start a thread for every CPU.
TEST(UsableCpus, CountsOnlyThoseThisProcessIsBoundTo) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

}  // namespace
}  // namespace trefoil
