// The system's side of reading: operations go in, bytes or an error number come out, in any order. What is whole, what
// is continued and what is a failure, DriveReader decides (drive_reader.h), so that every backend, the faulty ones of
// tests included, is judged by the same code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace trefoil {

struct ReadOperation {
  uint64_t id = 0;
  int fd = -1;
  uint64_t offset = 0;
  MutableBytes into;  // must live until the operation is done
  int buffer = -1;    // of add_buffer(), when `into` lies inside that memory
};

struct ReadCompletion {
  uint64_t id = 0;
  int64_t result = 0;  // bytes read, 0 at the end of the file, or a negative error number
};

class ReadBackend {
 public:
  virtual ~ReadBackend() = default;

  // Begins to read and returns. Safe from several threads. What cannot even begin is a completion with an error number.
  virtual void submit(const ReadOperation& operation) = 0;

  // Waits for at least one completion and appends what there is; one thread at a time. Returns with nothing after
  // wake().
  virtual void wait(std::vector<ReadCompletion>& done) = 0;
  // Makes the present or the next wait() return. Safe from any thread.
  virtual void wake() = 0;

  // Makes memory known ahead of its reads, so that the system pins it once and not at every read. -1 where there is no
  // such thing or it is refused: reads into it work all the same. Memory must be removed before it is unmapped.
  virtual int add_buffer(MutableBytes) { return -1; }
  virtual void remove_buffer(int) {}
  // What became of add_buffer() so far, for reports; empty when there is nothing to say.
  virtual std::string buffer_report() const { return {}; }
};

}  // namespace trefoil
