// A fixed pool of threads and a parallel loop over independent items.
//
// Results never depend on the number of threads: an item's work is the same wherever it runs, and items write apart.
// An exception thrown by an item is kept and rethrown by the caller after all threads are done (the one of the lowest
// item index, so that the message is the same on every run). parallel_for may not be nested inside an item.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "trefoil/machine.h"  // usable_cpus

namespace trefoil {

class ThreadPool {
 public:
  // num_threads >= 1; the calling thread counts as one of them.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls body(i) once for every i in [0, count), in any order, on any thread of the pool.
  void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

  // Splits [0, count) into consecutive ranges of at most `grain` and calls body(begin, end) for each.
  void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trefoil
