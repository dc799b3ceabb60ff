#include "stream/pread_backend.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace trefoil {

int64_t pread_once(int fd, uint64_t offset, MutableBytes into) {
  for (;;) {
    const ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (got >= 0) return got;
    if (errno != EINTR) return -errno;
  }
}

PreadBackend::PreadBackend(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
}

PreadBackend::~PreadBackend() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PreadBackend::submit(const ReadOperation& operation) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(operation);
  }
  work_ready_.notify_one();
}

void PreadBackend::wait(std::vector<ReadCompletion>& done) {
  std::unique_lock lock(mutex_);
  work_done_.wait(lock, [&] { return woken_ || !done_.empty(); });
  woken_ = false;
  done.insert(done.end(), done_.begin(), done_.end());
  done_.clear();
}

void PreadBackend::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  work_done_.notify_all();
}

void PreadBackend::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_ready_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const ReadOperation operation = queue_.front();
    queue_.pop_front();
    lock.unlock();
    const int64_t result = pread_once(operation.fd, operation.offset, operation.into);
    lock.lock();
    done_.push_back({operation.id, result});
    work_done_.notify_all();
  }
}

}  // namespace trefoil
