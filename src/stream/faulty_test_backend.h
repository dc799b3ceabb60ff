// For tests: a drive that does to the nth read what the test says, and records what it was asked for.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "stream/pread_backend.h"

namespace trefoil::testing {

// What happens to a read. Default: nothing out of the ordinary.
struct ReadFault {
  int error = 0;         // an error number in place of bytes
  size_t at_most = 0;    // above 0: says that it brought no more than so many bytes, and brings no more
  bool is_late = false;  // held back until FaultyDrive::release()
};

// Shared by the test and the backend, which the reader owns.
class FaultyDrive {
 public:
  using Plan = std::function<ReadFault(int n, const ReadOperation& operation)>;

  explicit FaultyDrive(Plan plan = [](int, const ReadOperation&) { return ReadFault(); }) : plan_(std::move(plan)) {}

  void set_plan(Plan plan) {
    const std::lock_guard lock(mutex_);
    plan_ = std::move(plan);
    num_reads_ = 0;
  }
  int num_reads() const {
    const std::lock_guard lock(mutex_);
    return num_reads_;
  }
  // Lets all late reads go. No later read is held back.
  void release() {
    std::vector<ReadOperation> late;
    {
      const std::lock_guard lock(mutex_);
      late.swap(late_);
      is_released_ = true;
    }
    for (const ReadOperation& operation : late) inner_->submit(operation);
  }

  // For DriveReaderOptions::make_backend; once.
  std::unique_ptr<ReadBackend> make(int depth) {
    inner_ = std::make_shared<PreadBackend>(depth);
    return std::make_unique<Backend>(this, inner_);
  }

 private:
  class Backend : public ReadBackend {
   public:
    Backend(FaultyDrive* drive, std::shared_ptr<PreadBackend> inner) : drive_(drive), inner_(std::move(inner)) {}
    void submit(const ReadOperation& operation) override { drive_->submit(operation); }
    void wait(std::vector<ReadCompletion>& done) override {
      inner_->wait(done);
      drive_->shorten(done);
      drive_->take_failed(done);
    }
    void wake() override {
      drive_->release();
      inner_->wake();
    }

   private:
    FaultyDrive* drive_;
    std::shared_ptr<PreadBackend> inner_;
  };

  void submit(const ReadOperation& operation) {
    ReadOperation changed = operation;
    {
      const std::lock_guard lock(mutex_);
      const ReadFault fault = plan_(num_reads_++, operation);
      if (fault.error != 0) failed_.push_back({operation.id, -fault.error});
      if (fault.is_late && !is_released_) {
        late_.push_back(operation);
        return;
      }
      if (fault.at_most > 0) shortened_[operation.id] = {operation.into, fault.at_most};
      if (fault.error != 0) changed.id = 0;
    }
    if (changed.id == 0) {
      inner_->wake();
    } else {
      inner_->submit(changed);
    }
  }

  // O_DIRECT refuses to read half pages, so a short read is a whole one with its end made unreadable.
  void shorten(std::vector<ReadCompletion>& done) {
    const std::lock_guard lock(mutex_);
    for (ReadCompletion& completion : done) {
      const auto found = shortened_.find(completion.id);
      if (found == shortened_.end()) continue;
      const auto& [into, at_most] = found->second;
      if (completion.result > static_cast<int64_t>(at_most)) {
        completion.result = static_cast<int64_t>(at_most);
        std::fill(into.begin() + static_cast<std::ptrdiff_t>(at_most), into.end(), std::byte{0xEE});
      }
      shortened_.erase(found);
    }
  }

  void take_failed(std::vector<ReadCompletion>& done) {
    const std::lock_guard lock(mutex_);
    done.insert(done.end(), failed_.begin(), failed_.end());
    failed_.clear();
  }

  mutable std::mutex mutex_;
  Plan plan_;
  int num_reads_ = 0;
  bool is_released_ = false;
  std::map<uint64_t, std::pair<MutableBytes, size_t>> shortened_;
  std::vector<ReadOperation> late_;
  std::vector<ReadCompletion> failed_;
  std::shared_ptr<PreadBackend> inner_;
};

}  // namespace trefoil::testing
