// Reads ranges of files straight from the drive, several at once, into memory of the caller's. Not for small or
// sequential reads (checkpoint/file.h), and it never writes.
//
// How it reads is found out, not assumed: every file is opened with O_DIRECT and probed with a real read, the ring with
// a real read through it. What was refused falls back (io_uring -> a pool of threads in pread; O_DIRECT -> the page
// cache, for that file alone), and report() says so with the reason.
//
// A read is whole or it is an error: short reads are continued, interruptions repeated, the end of the file is a failure
// that says how long the file was. Threads: one of its own calls the `done` functions, one at a time; submit(),
// promote() and cancel() are safe from any thread, from inside `done` too. docs/architecture.md, "Experts from the
// drive".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stream/read_backend.h"

namespace trefoil {

enum class ReadMode {
  kAuto,         // the first of the others that the system allows
  kUringDirect,  // io_uring, O_DIRECT, registered buffers where the system allows them
  kPreadDirect,  // threads in pread, O_DIRECT
  kBuffered,     // threads in pread through the page cache
};
const char* to_string(ReadMode mode);                            // "auto", "io_uring", "pread", "buffered"
std::optional<ReadMode> parse_read_mode(std::string_view text);  // the inverse

struct DriveReaderOptions {
  ReadMode mode = ReadMode::kAuto;  // another than kAuto is refused with Error(kUnsupported) where it is not possible
  int depth = 8;                    // reads under way at once
  // Tests: another backend in place of the system's. Called once with the depth.
  std::function<std::unique_ptr<ReadBackend>(int depth)> make_backend = nullptr;
};

// Bytes [offset, offset + size) of a file. The first of them is put at into[offset % 4096]: the aligned range around
// them is what O_DIRECT reads, and other modes put them at the same place. `into` begins at a multiple of 4096 and is
// at least align_up(offset % 4096 + size) long; what it holds outside the wanted bytes is unspecified.
struct DriveRead {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  MutableBytes into;
  int buffer = -1;  // of DriveReader::add_buffer()
};

// Null: whole. Otherwise why not, with file, offset, wanted and got.
using ReadDone = std::function<void(const std::string* error)>;

struct DriveReaderCounters {
  uint64_t reads = 0;       // of the system, continuations included
  uint64_t bytes = 0;       // that they brought, alignment included
  uint64_t failures = 0;    // requests that ended in an error
  double busy_seconds = 0;  // during which at least one read was under way
};

class DriveReader {
 public:
  enum class Priority { kNeeded, kHinted };
  using Id = uint64_t;

  // Opens and probes. Error(kNotFound, kIo, kUnsupported) names the file.
  static std::unique_ptr<DriveReader> open(const std::vector<std::filesystem::path>& files,
                                           const DriveReaderOptions& options = {});
  // Waits for the reads under way; those that have not begun end with the error "stopped".
  ~DriveReader();
  DriveReader(const DriveReader&) = delete;
  DriveReader& operator=(const DriveReader&) = delete;

  ReadMode mode() const;       // what is in use
  std::string report() const;  // "pread pool of 16 threads, O_DIRECT (io_uring refused: Operation not permitted)"

  // `done` is called exactly once, never from inside submit(). Hinted reads begin when
  // no needed one waits and less than half of the depth is under way, so that a needed one never stands behind many.
  Id submit(const DriveRead& read, Priority priority, ReadDone done);
  // Of a read that still waits: makes it needed. Nothing for one that has begun or ended.
  void promote(Id id);
  // True: none of the reads had begun, and none will; no `done` is called. False: nothing has changed.
  bool cancel(std::span<const Id> ids);
  bool has_begun(Id id) const;  // or ended

  int add_buffer(MutableBytes memory);  // ReadBackend::add_buffer
  void remove_buffer(int buffer);

  DriveReaderCounters counters() const;

 private:
  DriveReader();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trefoil
