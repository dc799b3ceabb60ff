// Reads by a pool of threads that each wait in pread(). Works everywhere.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "stream/read_backend.h"

namespace trefoil {

class PreadBackend : public ReadBackend {
 public:
  explicit PreadBackend(int num_threads);
  // Waits for the reads that have begun; those that have not are dropped.
  ~PreadBackend() override;
  PreadBackend(const PreadBackend&) = delete;
  PreadBackend& operator=(const PreadBackend&) = delete;

  void submit(const ReadOperation& operation) override;
  void wait(std::vector<ReadCompletion>& done) override;
  void wake() override;

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable work_done_;
  std::deque<ReadOperation> queue_;
  std::vector<ReadCompletion> done_;
  bool woken_ = false;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// One pread(), repeated while a signal interrupts it: bytes or a negative error number.
int64_t pread_once(int fd, uint64_t offset, MutableBytes into);

}  // namespace trefoil
