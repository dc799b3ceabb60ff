// Files: mapped and plain reads, and writes that are either whole under their final name or not there at all.
// Only src/checkpoint opens files; every other folder goes through here. Errors are Error(kIo / kNotFound) with the
// path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace trefoil {

namespace fs = std::filesystem;

// A read-only file: size() once at open, read_at() exact or an Error naming path, offset, wanted and got.
// Reads are split so that no single system call asks for more than 1 GiB. Safe to use from several threads.
class InputFile {
 public:
  explicit InputFile(const fs::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const fs::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  void read_at(uint64_t offset, MutableBytes out) const;
  // A hint: the system may begin to read these bytes now, so that read_at() finds them in memory.
  void read_ahead(uint64_t offset, uint64_t bytes) const;

 private:
  fs::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// A read-only private mapping of a whole file. An empty file maps to an empty span. A file that others truncate while
// it is mapped kills the process with SIGBUS at the next touch; InputFile reports an Error instead.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const fs::path& path() const { return path_; }
  Bytes bytes() const { return bytes_; }

 private:
  fs::path path_;
  Bytes bytes_;
};

// Writes `path` under a temporary name in the same folder; commit() flushes, fsyncs, renames and fsyncs the folder.
// Without commit() the destructor removes the temporary file, so an exception leaves nothing behind. What a killed
// process left (PATH.partial) is overwritten by the next writer of PATH; a second writer at the same time gets
// Error(kIo). A symbolic link at PATH is replaced, not followed.
class AtomicFile {
 public:
  static constexpr std::string_view kPartialSuffix = ".partial";

  explicit AtomicFile(const fs::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(Bytes bytes);
  void write(std::string_view text) { write(as_bytes_of(text)); }
  uint64_t written() const { return written_; }
  void commit();

 private:
  fs::path path_;
  fs::path temporary_;
  int fd_ = -1;
  uint64_t written_ = 0;
};

// A file that is filled in any order, perhaps by several processes and over several runs; whoever uses it keeps a record
// of what in it is finished. It has its full size from the start, without the disk space (holes read as zeros).
// read_at() and write_at() are exact or an Error(kIo) naming path and offset, and safe to use from several threads on
// different bytes.
class WorkFile {
 public:
  enum class Open {
    kMake,      // makes the file, or opens one that is there and gives it this size
    kExisting,  // Error when it is not there (kNotFound) or has another size (kIo): its content is relied on
  };
  // A symbolic link is not followed.
  WorkFile(const fs::path& path, uint64_t size, Open open = Open::kMake);
  WorkFile(WorkFile&& other) noexcept;
  WorkFile& operator=(WorkFile&&) = delete;
  ~WorkFile();

  const fs::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  void read_at(uint64_t offset, MutableBytes out) const;
  void write_at(uint64_t offset, Bytes bytes);
  // Returns when what was written is on the disk.
  void sync();

 private:
  fs::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// A file that only serves as a lock between processes, held until the object or the process ends.
class FileLock {
 public:
  enum class Mode { kShared, kExclusive };
  // Nothing when another process holds it. `note`, if any, replaces the file's text, so that others can say who has it.
  static std::optional<FileLock> acquire(const fs::path& path, Mode mode, std::string_view note = {});
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();
  // From exclusive to shared.
  void share();
  // False on file systems without locks: nobody is kept out.
  bool is_real() const { return is_real_; }

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
  bool is_real_ = true;
};

// The whole file as text; refuses files over `limit` bytes (Error kCorrupt) before allocating.
std::string read_text_file(const fs::path& path, uint64_t limit = 1ull << 31);
void write_text_file(const fs::path& path, std::string_view text);  // atomic
// Byte copy through AtomicFile.
void copy_file_atomic(const fs::path& from, const fs::path& to);
// `before_piece` is called before each few MiB and may throw.
std::string sha256_of_file(
    const fs::path& path, const std::function<void()>& before_piece = [] {});
// Disk space that the files below a folder take, holes left out; 0 when it is not there.
uint64_t space_used(const fs::path& folder);
// Makes the folder (and parents). Error(kIo) with the reason.
void make_folder(const fs::path& path);

}  // namespace trefoil
