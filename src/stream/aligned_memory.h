// Memory for reads from a drive: pages of its own, given back to the system the moment it goes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace trefoil {

// What O_DIRECT asks of offsets, sizes and addresses on every drive and file system in use; a file that wants more
// fails its probe read (drive_reader.h).
constexpr uint64_t kDirectAlignment = 4096;

constexpr uint64_t align_down(uint64_t value) {
  return value / kDirectAlignment * kDirectAlignment;
}
constexpr uint64_t align_up(uint64_t value) {
  return align_down(value + kDirectAlignment - 1);
}

// An anonymous mapping at a 2 MiB boundary, huge pages asked for: pinning it for a read then takes hundreds of times
// fewer steps. Pages are taken as they are written. Movable, not copyable.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  // Error(kOverBudget) with the size when the system refuses.
  explicit AlignedMemory(uint64_t bytes);
  ~AlignedMemory() { free(); }
  AlignedMemory(AlignedMemory&& other) noexcept : bytes_(other.bytes_) { other.bytes_ = {}; }
  AlignedMemory& operator=(AlignedMemory&& other) noexcept;
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;

  MutableBytes bytes() const { return bytes_; }

 private:
  void free();
  MutableBytes bytes_;
};

}  // namespace trefoil
