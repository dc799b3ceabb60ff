// One file to read from: opened with O_DIRECT where a probe read shows that this works, else through the page cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace trefoil {

class DriveFile {
 public:
  // Error(kNotFound, kIo) when it cannot be opened, Error(kUnsupported) when it is no regular file.
  DriveFile(const std::filesystem::path& path, bool want_direct);
  ~DriveFile();
  DriveFile(DriveFile&& other) noexcept;
  DriveFile& operator=(DriveFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened
  int fd() const { return fd_; }
  bool is_direct() const { return direct_; }
  // Why it is not direct though that was wanted; empty otherwise.
  const std::string& refusal() const { return refusal_; }

 private:
  std::filesystem::path path_;
  uint64_t size_ = 0;
  int fd_ = -1;
  bool direct_ = false;
  std::string refusal_;
};

}  // namespace trefoil
