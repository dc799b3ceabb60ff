// Memory that is handed out piece by piece and lives as long as the arena: many large blocks in few mappings. Safe to use
// from several threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/page_buffer.h"

namespace trefoil {

class Arena {
 public:
  // Aligned to a cache line. Blocks are set apart by an odd number of lines, so that threads that walk equal blocks side
  // by side do not meet in the same cache sets. Error(kOverBudget) when the system has no more.
  std::span<std::byte> take(uint64_t bytes);

 private:
  static constexpr uint64_t kLine = 64;
  static constexpr uint64_t kApart = 13 * kLine;
  static constexpr uint64_t kSlab = uint64_t{256} << 20;

  std::mutex mutex_;
  std::vector<PageBuffer> slabs_;
  uint64_t used_ = 0;  // of the last slab
};

}  // namespace trefoil
