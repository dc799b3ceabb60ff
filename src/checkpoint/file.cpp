#include "checkpoint/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/sha256.h"

namespace trefoil {
namespace {

// Linux moves at most 2^31 - 4096 bytes per call and other systems refuse 2^31; K3's embedding alone is 2.35 GB.
constexpr size_t kLargestTransfer = size_t{1} << 30;
constexpr size_t kCopyChunk = size_t{4} << 20;

std::string reason(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void fail_errno(std::string_view doing, const fs::path& path, int error) {
  const bool absent = error == ENOENT || error == ENOTDIR;
  fail(absent ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot {}: {}", path.string(), doing, reason(error));
}

// O_NONBLOCK: opening a FIFO returns at once and is then refused as not a regular file, instead of waiting for a
// writer.
int open_regular(const fs::path& path, uint64_t* size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_errno("open", path, errno);
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    const int error = errno;
    ::close(fd);
    fail_errno("read the size", path, error);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd);
    fail(ErrorCode::kUnsupported, "{}: not a regular file", path.string());
  }
  *size = static_cast<uint64_t>(status.st_size);
  return fd;
}

// The temporary name is fixed, so what a killed run left behind is reused, and the lock keeps two live writers apart.
fs::path temporary_name(const fs::path& path) {
  fs::path name = path;
  name += AtomicFile::kPartialSuffix;
  return name;
}

bool is_same_file(int fd, const fs::path& path) {
  struct stat open_file {};
  struct stat named_file {};
  return ::fstat(fd, &open_file) == 0 && ::lstat(path.c_str(), &named_file) == 0 &&
         open_file.st_dev == named_file.st_dev && open_file.st_ino == named_file.st_ino;
}

int open_temporary_once(const fs::path& temporary) {
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd < 0) fail_errno("create", temporary, errno);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {  // file systems without locks go on without
    ::close(fd);
    fail(ErrorCode::kIo, "{}: another process is writing this file", temporary.string());
  }
  return fd;
}

// Locked, empty, and still the file of that name: another writer may have renamed it between our open and our lock.
int open_temporary(const fs::path& temporary) {
  constexpr int kAttempts = 100;
  int fd = open_temporary_once(temporary);
  for (int attempt = 1; !is_same_file(fd, temporary); ++attempt) {
    ::close(fd);
    if (attempt == kAttempts) fail(ErrorCode::kIo, "{}: others keep replacing this file", temporary.string());
    fd = open_temporary_once(temporary);
  }
  if (::ftruncate(fd, 0) != 0) {
    const int error = errno;
    ::close(fd);
    fail_errno("truncate", temporary, error);
  }
  return fd;
}

// Makes a rename in the folder durable. Some network file systems cannot sync folders and say EINVAL.
void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_errno("open", folder, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error != 0 && error != EINVAL) fail_errno("sync", folder, error);
}

// Calls use(piece) for consecutive pieces of the file.
template <typename Use>
void for_each_chunk(const InputFile& file, Use use) {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(file.size(), kCopyChunk)));
  for (uint64_t offset = 0; offset < file.size(); offset += buffer.size()) {
    const MutableBytes piece(buffer.data(),
                             static_cast<size_t>(std::min<uint64_t>(buffer.size(), file.size() - offset)));
    file.read_at(offset, piece);
    use(Bytes(piece));
  }
}

// Reads all of `out` from `offset` of an open file that had `size` bytes.
void read_exactly(int fd, const fs::path& path, uint64_t size, uint64_t offset, MutableBytes out) {
  size_t done = 0;
  while (done < out.size()) {
    const size_t wanted = std::min(out.size() - done, kLargestTransfer);
    const ssize_t got = ::pread(fd, out.data() + done, wanted, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      fail(ErrorCode::kIo, "{}: cannot read {} bytes at offset {}: {}", path.string(), wanted, offset + done,
           reason(errno));
    }
    if (got == 0) {
      fail(ErrorCode::kIo,
           "{}: {} bytes wanted at offset {}, got {}: the file had {} bytes when it was opened and is shorter now",
           path.string(), out.size(), offset, done, size);
    }
    done += static_cast<size_t>(got);
  }
}

void check_range(const fs::path& path, uint64_t size, uint64_t offset, size_t count) {
  if (offset > size || count > size - offset)
    fail(ErrorCode::kIo, "{}: {} bytes wanted at offset {}, the file has {}", path.string(), count, offset, size);
}

}  // namespace

InputFile::InputFile(const fs::path& path) : path_(path) {
  fd_ = open_regular(path, &size_);
}

InputFile::~InputFile() {
  ::close(fd_);
}

void InputFile::read_at(uint64_t offset, MutableBytes out) const {
  check_range(path_, size_, offset, out.size());
  read_exactly(fd_, path_, size_, offset, out);
}

void InputFile::read_ahead(uint64_t offset, uint64_t bytes) const {
  check_range(path_, size_, offset, bytes);
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);  // a hint
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  uint64_t size = 0;
  const int fd = open_regular(path, &size);
  if (size == 0) {
    ::close(fd);
    return;
  }
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (start == MAP_FAILED) fail_errno("map", path, error);
  bytes_ = Bytes(static_cast<const std::byte*>(start), size);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path), temporary_(temporary_name(path)) {
  fd_ = open_temporary(temporary_);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(fd_);
}

void AtomicFile::write(Bytes bytes) {
  TREFOIL_CHECK(fd_ >= 0);  // not after commit()
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t wanted = std::min(bytes.size() - done, kLargestTransfer);
    const ssize_t put = ::write(fd_, bytes.data() + done, wanted);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      fail(ErrorCode::kIo, "{}: cannot write {} bytes at offset {}: {}", path_.string(), wanted, written_,
           reason(errno));
    }
    done += static_cast<size_t>(put);
    written_ += static_cast<uint64_t>(put);
  }
}

void AtomicFile::commit() {
  TREFOIL_CHECK(fd_ >= 0);
  if (::fsync(fd_) != 0) fail_errno("sync", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("rename to", path_, errno);
  const int error = ::close(fd_) == 0 ? 0 : errno;
  fd_ = -1;
  if (error != 0) fail_errno("close", path_, error);
  sync_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

WorkFile::WorkFile(const fs::path& path, uint64_t size, Open open) : path_(path), size_(size) {
  const int create = open == Open::kMake ? O_CREAT : 0;
  fd_ = ::open(path.c_str(), O_RDWR | create | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd_ < 0) fail_errno("open", path, errno);
  struct stat status {};
  const bool is_known = ::fstat(fd_, &status) == 0;
  if (is_known && open == Open::kExisting && static_cast<uint64_t>(status.st_size) != size) {
    ::close(fd_);
    fail(ErrorCode::kIo, "{}: {} bytes, expected {}", path.string(), status.st_size, size);
  }
  if (is_known && S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) == size) return;
  if (is_known && S_ISREG(status.st_mode) && ::ftruncate(fd_, static_cast<off_t>(size)) == 0) return;
  const int error = errno;
  ::close(fd_);
  if (is_known && !S_ISREG(status.st_mode)) fail(ErrorCode::kUnsupported, "{}: not a regular file", path.string());
  fail_errno("set the size", path, error);
}

WorkFile::WorkFile(WorkFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

WorkFile::~WorkFile() {
  if (fd_ >= 0) ::close(fd_);
}

void WorkFile::read_at(uint64_t offset, MutableBytes out) const {
  check_range(path_, size_, offset, out.size());
  read_exactly(fd_, path_, size_, offset, out);
}

void WorkFile::write_at(uint64_t offset, Bytes bytes) {
  check_range(path_, size_, offset, bytes.size());
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t wanted = std::min(bytes.size() - done, kLargestTransfer);
    const ssize_t put = ::pwrite(fd_, bytes.data() + done, wanted, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      fail(ErrorCode::kIo, "{}: cannot write {} bytes at offset {}: {}", path_.string(), wanted, offset + done,
           reason(errno));
    }
    done += static_cast<size_t>(put);
  }
}

void WorkFile::sync() {
  if (::fsync(fd_) != 0) fail_errno("sync", path_, errno);
}

std::optional<FileLock> FileLock::acquire(const fs::path& path, Mode mode, std::string_view note) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) fail_errno("open", path, errno);
  FileLock lock(fd);
  while (::flock(fd, (mode == Mode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return std::nullopt;
    if (errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) fail_errno("lock", path, errno);
    lock.is_real_ = false;
    break;
  }
  if (!note.empty() && ::ftruncate(fd, 0) == 0) {
    // Only a courtesy to the reader of a message: a note that cannot be written is no reason to stop.
    [[maybe_unused]] const ssize_t put = ::pwrite(fd, note.data(), note.size(), 0);
  }
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), is_real_(other.is_real_) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(is_real_, other.is_real_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

void FileLock::share() {
  while (is_real_ && ::flock(fd_, LOCK_SH) != 0) {
    if (errno != EINTR) fail(ErrorCode::kIo, "a lock cannot be shared: {}", reason(errno));
  }
}

std::string read_text_file(const fs::path& path, uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes, at most {} are expected of such a file", path.string(), file.size(),
         limit);
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void copy_file_atomic(const fs::path& from, const fs::path& to) {
  const InputFile source(from);
  AtomicFile target(to);
  for_each_chunk(source, [&](Bytes piece) { target.write(piece); });
  target.commit();
}

std::string sha256_of_file(const fs::path& path, const std::function<void()>& before_piece) {
  const InputFile file(path);
  Sha256 sum;
  for_each_chunk(file, [&](Bytes piece) {
    before_piece();
    sum.update(piece);
  });
  return sum.hex();
}

uint64_t space_used(const fs::path& folder) {
  constexpr uint64_t kBlock = 512;  // of st_blocks
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    struct stat status {};
    if (::lstat(it->path().c_str(), &status) == 0) bytes += static_cast<uint64_t>(status.st_blocks) * kBlock;
  }
  return bytes;
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path, error) && !error) error = std::make_error_code(std::errc::not_a_directory);
  if (error) fail(ErrorCode::kIo, "{}: cannot make this folder: {}", path.string(), error.message());
}

}  // namespace trefoil
