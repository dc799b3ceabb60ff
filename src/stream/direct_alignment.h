// The alignment of reads from a drive. Their memory is base/page_buffer.h.
#pragma once

#include <cstdint>

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

}  // namespace trefoil
