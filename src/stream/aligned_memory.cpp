#include "stream/aligned_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

}  // namespace

AlignedMemory::AlignedMemory(uint64_t bytes) {
  const uint64_t size = align_up(bytes);
  // A huge page more than needed, so that a boundary lies in it; what is before and behind goes back at once.
  void* mapped = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    fail(ErrorCode::kOverBudget, "cannot map {} bytes for an expert: {} (vm.max_map_count bounds the number of such)",
         size, std::generic_category().message(errno));
  }
  auto* first = static_cast<std::byte*>(mapped);
  const uint64_t skipped = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
  if (skipped > 0) ::munmap(first, skipped);
  if (skipped < kHugePage) ::munmap(first + skipped + size, kHugePage - skipped);
  bytes_ = {first + skipped, static_cast<size_t>(size)};
  ::madvise(bytes_.data(), bytes_.size(), MADV_HUGEPAGE);  // a wish: without huge pages all works, slower
}

AlignedMemory& AlignedMemory::operator=(AlignedMemory&& other) noexcept {
  if (this != &other) {
    free();
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

void AlignedMemory::free() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  bytes_ = {};
}

}  // namespace trefoil
