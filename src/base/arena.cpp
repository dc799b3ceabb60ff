#include "base/arena.h"

#include <algorithm>

#include "base/bytes.h"

namespace trefoil {

std::span<std::byte> Arena::take(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t rounded = round_up(bytes, kLine);
  if (slabs_.empty() || slabs_.back().size() - used_ < rounded) {
    slabs_.emplace_back(std::max(kSlab, rounded));
    used_ = 0;
  }
  std::byte* const data = slabs_.back().data() + used_;
  used_ = std::min(slabs_.back().size(), used_ + rounded + kApart);
  return {data, bytes};
}

}  // namespace trefoil
