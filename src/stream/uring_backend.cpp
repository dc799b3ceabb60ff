#include "stream/uring_backend.h"

#include <fmt/format.h>
#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/check.h"

namespace trefoil {
namespace {

constexpr unsigned kMostBuffers = 1u << 14;  // IORING_MAX_REG_BUFFERS
constexpr uint64_t kWake = ~uint64_t{0};     // the id of the operation that only ends a wait()

std::string reason(int error) {
  return std::generic_category().message(error);
}

class UringBackend : public ReadBackend {
 public:
  // Takes over a ring that is set up.
  UringBackend(io_uring ring, int depth) : ring_(ring), depth_(depth) {
    const int error = io_uring_register_buffers_sparse(&ring_, kMostBuffers);
    if (error == 0) {
      for (int i = static_cast<int>(kMostBuffers); i-- > 0;) free_buffers_.push_back(i);
    } else {
      buffer_refusal_ = reason(-error);
    }
  }
  ~UringBackend() override { io_uring_queue_exit(&ring_); }
  UringBackend(const UringBackend&) = delete;
  UringBackend& operator=(const UringBackend&) = delete;

  void submit(const ReadOperation& operation) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(operation);
    begin_waiting();
  }

  // The completion queue is this thread's alone, so it is read without the lock.
  void wait(std::vector<ReadCompletion>& done) override {
    io_uring_cqe* first = nullptr;
    int error = 0;
    do {
      error = io_uring_wait_cqe(&ring_, &first);
    } while (error == -EINTR);
    unsigned head = 0;
    unsigned seen = 0;
    int reads = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(&ring_, head, entry) {
      ++seen;
      if (entry->user_data == kWake) continue;
      done.push_back({entry->user_data, entry->res});
      ++reads;
    }
    io_uring_cq_advance(&ring_, seen);
    const std::lock_guard lock(mutex_);
    under_way_ -= reads;
    begin_waiting();
  }

  void wake() override {
    const std::lock_guard lock(mutex_);
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // one place more than `depth` is kept for it
    if (entry == nullptr) return;                    // a wake is queued already
    io_uring_prep_nop(entry);
    entry->user_data = kWake;
    submit_entries();
  }

  int add_buffer(MutableBytes memory) override {
    const std::lock_guard lock(mutex_);
    if (free_buffers_.empty()) {
      if (buffer_refusal_.empty()) buffer_refusal_ = fmt::format("a ring holds {} buffers", kMostBuffers);
      return -1;
    }
    const int buffer = free_buffers_.back();
    const int result = update_buffer(buffer, {memory.data(), memory.size()});
    if (result < 0) {
      buffer_refusal_ = reason(-result);
      return -1;
    }
    free_buffers_.pop_back();
    ++num_buffers_;
    return buffer;
  }

  void remove_buffer(int buffer) override {
    const std::lock_guard lock(mutex_);
    update_buffer(buffer, {nullptr, 0});
    free_buffers_.push_back(buffer);
    --num_buffers_;
  }

  std::string buffer_report() const override {
    const std::lock_guard lock(mutex_);
    if (buffer_refusal_.empty()) return "registered buffers";
    return fmt::format("{} registered buffers, others refused: {}", num_buffers_, buffer_refusal_);
  }

 private:
  int update_buffer(int buffer, iovec memory) {
    const __u64 tag = 0;
    const int result = io_uring_register_buffers_update_tag(&ring_, static_cast<unsigned>(buffer), &memory, &tag, 1);
    return result == 1 || result < 0 ? result : -EINVAL;
  }

  void begin_waiting() {
    while (!waiting_.empty() && under_way_ < depth_) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) break;
      const ReadOperation operation = waiting_.front();
      waiting_.pop_front();
      const auto size = static_cast<unsigned>(operation.into.size());
      if (operation.buffer >= 0) {
        io_uring_prep_read_fixed(entry, operation.fd, operation.into.data(), size, operation.offset, operation.buffer);
      } else {
        io_uring_prep_read(entry, operation.fd, operation.into.data(), size, operation.offset);
      }
      entry->user_data = operation.id;
      ++under_way_;
    }
    submit_entries();
  }

  // EAGAIN and EBUSY: the kernel is short of memory or of places for completions, which others make.
  void submit_entries() {
    int result = 0;
    while ((result = io_uring_submit(&ring_)) < 0) {
      TREFOIL_CHECK(result == -EINTR || result == -EAGAIN || result == -EBUSY);
      if (result != -EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  mutable std::mutex mutex_;  // all but the completion queue
  io_uring ring_;
  int depth_;
  int under_way_ = 0;
  std::deque<ReadOperation> waiting_;
  std::vector<int> free_buffers_;
  int num_buffers_ = 0;
  std::string buffer_refusal_;
};

}  // namespace

std::unique_ptr<ReadBackend> make_uring_backend(int depth, std::string* refusal) {
  io_uring ring{};
  const int error = io_uring_queue_init(static_cast<unsigned>(depth) + 1, &ring, 0);
  if (error < 0) {
    *refusal = reason(-error);
    return nullptr;
  }
  return std::make_unique<UringBackend>(ring, depth);
}

}  // namespace trefoil
