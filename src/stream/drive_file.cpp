#include "stream/drive_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/page_buffer.h"
#include "stream/direct_alignment.h"
#include "stream/pread_backend.h"

namespace trefoil {
namespace {

// O_NONBLOCK: a FIFO opens at once and is then refused, instead of waiting for a writer.
constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

std::string reason(int error) {
  return std::generic_category().message(error);
}

// The first page and the last, whose end is no multiple of the alignment: both must come whole.
std::string direct_refusal(int fd, uint64_t size) {
  PageBuffer page(kDirectAlignment);
  for (const uint64_t offset : {uint64_t{0}, align_down(size > 0 ? size - 1 : 0)}) {
    const int64_t got = pread_once(fd, offset, page.bytes());
    if (got < 0) return reason(static_cast<int>(-got));
    const uint64_t wanted = std::min(kDirectAlignment, size - offset);
    if (static_cast<uint64_t>(got) < wanted)
      return fmt::format("a probe of {} bytes at offset {} gave {}", wanted, offset, got);
  }
  return {};
}

}  // namespace

DriveFile::DriveFile(const std::filesystem::path& path, bool want_direct) : path_(path) {
  const auto fail_errno = [&](std::string_view doing) {
    const int error = errno;
    if (fd_ >= 0) ::close(fd_);
    const bool absent = error == ENOENT || error == ENOTDIR;
    fail(absent ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot {}: {}", path.string(), doing, reason(error));
  };
  fd_ = ::open(path.c_str(), kFlags);
  if (fd_ < 0) fail_errno("open");
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail_errno("read the size");
  if (!S_ISREG(status.st_mode)) {
    ::close(fd_);
    fail(ErrorCode::kUnsupported, "{}: not a regular file", path.string());
  }
  size_ = static_cast<uint64_t>(status.st_size);
  if (!want_direct) return;
  const int direct = ::open(path.c_str(), kFlags | O_DIRECT);
  if (direct < 0) {
    refusal_ = reason(errno);
    return;
  }
  refusal_ = direct_refusal(direct, size_);
  direct_ = refusal_.empty();
  ::close(direct_ ? std::exchange(fd_, direct) : direct);
}

DriveFile::~DriveFile() {
  if (fd_ >= 0) ::close(fd_);
}

DriveFile::DriveFile(DriveFile&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      fd_(std::exchange(other.fd_, -1)),
      direct_(other.direct_),
      refusal_(std::move(other.refusal_)) {}

}  // namespace trefoil
