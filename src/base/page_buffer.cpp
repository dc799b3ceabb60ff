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

PageBuffer::PageBuffer(uint64_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const bool large = bytes >= kLargePage;
  mapped_ = (bytes + kPage - 1) / kPage * kPage + (large ? kLargePage : 0);
  mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    fail(ErrorCode::kOverBudget, "cannot allocate {} bytes: {}", bytes, std::strerror(errno));
  }
  const auto address = reinterpret_cast<uintptr_t>(mapping_);
  const uintptr_t aligned = large ? (address + kLargePage - 1) / kLargePage * kLargePage : address;
  data_ = static_cast<std::byte*>(mapping_) + (aligned - address);
  if (large) ::madvise(data_, mapped_ - (aligned - address), MADV_HUGEPAGE);  // a wish: small pages work too
}

PageBuffer::PageBuffer(PageBuffer&& other) noexcept {
  *this = std::move(other);
}

PageBuffer& PageBuffer::operator=(PageBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapped_ = std::exchange(other.mapped_, 0);
  return *this;
}

PageBuffer::~PageBuffer() {
  release();
}

void PageBuffer::release() noexcept {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_);
  mapping_ = nullptr;
}

}  // namespace trefoil
