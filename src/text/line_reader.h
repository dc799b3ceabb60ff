// Lines of a file of any size, compressed or not (by its name), in memory bounded by the longest line that is allowed.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/text_stream.h"

namespace trefoil {

class LineReader {
 public:
  // Error(kCorrupt) naming FILE:LINE when a line holds more than max_line_bytes or the compressed data are
  // damaged.
  LineReader(const fs::path& file, uint64_t max_line_bytes) : stream_(file), max_line_bytes_(max_line_bytes) {}

  // The next line without its "\n" or "\r\n"; false at the end of the file. A last line without "\n" counts.
  bool next(std::string* line);
  // "FILE:LINE" of the line last returned.
  std::string place() const;

 private:
  bool refill();  // false at the end of the file

  TextStream stream_;
  uint64_t max_line_bytes_;
  std::string buffer_;
  size_t pos_ = 0;  // of the first byte of buffer_ that is not yet in a line
  int64_t line_number_ = 0;
};

}  // namespace trefoil
