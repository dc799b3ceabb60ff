// Counts the items of one of verify's long loops: tells progress, and ends the run when its caller asks for that.
// Safe to use from every thread of the pool.
#pragma once

#include <mutex>
#include <string>

#include "base/error.h"
#include "trefoil/verify.h"

namespace trefoil {

class VerifySteps {
 public:
  VerifySteps(const VerifyOptions& options, std::string stage, int64_t total)
      : options_(options), stage_(std::move(stage)), total_(total) {}

  // Before an item: Error(kCancelled) when options.stop is set.
  void begin() const {
    if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed))
      fail(ErrorCode::kCancelled, "{}: stopped as asked, nothing is proven", stage_);
  }
  // After an item.
  void end() {
    const std::lock_guard lock(mutex_);
    ++done_;
    if (options_.progress != nullptr) options_.progress->update(stage_, done_, total_);
  }

 private:
  const VerifyOptions& options_;
  const std::string stage_;
  const int64_t total_;
  std::mutex mutex_;
  int64_t done_ = 0;
};

}  // namespace trefoil
