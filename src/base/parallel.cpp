#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/system_files.h"

namespace trefoil {

namespace {

// Rounds of looking before a thread goes to sleep, some tens of microseconds: the loops of a decoded token follow each
// other faster than a sleeper wakes.
constexpr int kSpins = 4000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <typename Condition>
void spin_until(Condition condition) {
  for (int i = 0; i < kSpins && !condition(); ++i) pause_briefly();
}

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable work_ready;
  std::condition_variable work_done;
  std::vector<std::thread> threads;
  const std::function<void(int64_t)>* body = nullptr;
  int64_t count = 0;
  std::atomic<uint64_t> generation{0};  // changed under the mutex, looked at without it
  std::atomic<int> working{0};
  std::atomic<bool> stop{false};
  std::atomic<int64_t> next{0};
  int64_t failed_item = 0;
  std::exception_ptr failure;

  void run_items() {
    for (;;) {
      const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= count) return;
      try {
        (*body)(item);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure || item < failed_item) {
          failure = std::current_exception();
          failed_item = item;
        }
      }
    }
  }

  void serve() {
    uint64_t seen = 0;
    for (;;) {
      spin_until([&] { return generation.load(std::memory_order_relaxed) != seen; });
      {
        std::unique_lock lock(mutex);
        work_ready.wait(lock, [&] { return stop || generation != seen; });
        if (stop) return;
        seen = generation;
      }
      run_items();
      const std::lock_guard lock(mutex);
      if (--working == 0) work_done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  TREFOIL_CHECK(num_threads >= 1);
  for (int i = 1; i < num_threads; ++i) state_->threads.emplace_back([this] { state_->serve(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work_ready.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::num_threads() const {
  return static_cast<int>(state_->threads.size()) + 1;
}

void ThreadPool::parallel_for(int64_t count, const std::function<void(int64_t)>& body) {
  if (count <= 0) return;
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    TREFOIL_CHECK(s.body == nullptr);  // not nested
    s.body = &body;
    s.count = count;
    s.failure = nullptr;
    s.next.store(0, std::memory_order_relaxed);
    s.working = static_cast<int>(s.threads.size());
    ++s.generation;
  }
  s.work_ready.notify_all();
  s.run_items();
  spin_until([&] { return s.working.load(std::memory_order_relaxed) == 0; });
  std::exception_ptr failure;
  {
    std::unique_lock lock(s.mutex);
    s.work_done.wait(lock, [&] { return s.working == 0; });
    s.body = nullptr;
    failure = std::exchange(s.failure, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

void ThreadPool::parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  TREFOIL_CHECK(grain >= 1);
  parallel_for(ceil_div(count, grain), [&](int64_t i) { body(i * grain, std::min(count, (i + 1) * grain)); });
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                          : static_cast<int>(std::thread::hardware_concurrency());
  const int quota = cgroup_cpus();
  if (quota > 0) cpus = std::min(cpus, quota);
  return std::max(1, cpus);
}

}  // namespace trefoil
