// Zeroed memory of its own pages, 2 MiB pages where the system gives them, returned to the system when it dies. For
// weights that are walked through and for reads from a drive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trefoil {

class PageBuffer {
 public:
  PageBuffer() = default;
  // Aligned to 2 MiB when it is at least that large (pinning it for a drive then takes hundreds of times fewer steps),
  // else to 4 KiB. Whole pages. Error(kOverBudget) with the size when the system refuses.
  explicit PageBuffer(uint64_t bytes);
  PageBuffer(PageBuffer&& other) noexcept;
  PageBuffer& operator=(PageBuffer&& other) noexcept;
  ~PageBuffer();

  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  void release() noexcept;

  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace trefoil
