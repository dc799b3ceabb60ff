#include "base/page_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr uint64_t kLargePage = uint64_t{2} << 20;
constexpr uint64_t kPage = 4096;

}  // namespace

PageBuffer::PageBuffer(uint64_t bytes) : size_((bytes + kPage - 1) / kPage * kPage) {
  if (bytes == 0) return;
  // A large page more than needed, so that a boundary lies in it; what is before and behind goes back at once.
  const uint64_t spare = size_ >= kLargePage ? kLargePage : 0;
  void* const mapped = ::mmap(nullptr, size_ + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    fail(ErrorCode::kOverBudget, "cannot map {} bytes: {} (vm.max_map_count bounds the number of such blocks)", size_,
         std::strerror(errno));
  }
  auto* const first = static_cast<std::byte*>(mapped);
  const uint64_t skipped = spare == 0 ? 0 : (kLargePage - reinterpret_cast<uintptr_t>(first) % kLargePage) % kLargePage;
  if (skipped > 0) ::munmap(first, skipped);
  if (skipped < spare) ::munmap(first + skipped + size_, spare - skipped);
  data_ = first + skipped;
  if (spare > 0) ::madvise(data_, size_, MADV_HUGEPAGE);  // a wish: small pages work too
}

PageBuffer::PageBuffer(PageBuffer&& other) noexcept {
  *this = std::move(other);
}

PageBuffer& PageBuffer::operator=(PageBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

PageBuffer::~PageBuffer() {
  release();
}

void PageBuffer::release() noexcept {
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = nullptr;
}

}  // namespace trefoil
