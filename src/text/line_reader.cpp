#include "text/line_reader.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr uint64_t kChunkBytes = 1 << 20;

}  // namespace

std::string LineReader::place() const {
  return fmt::format("{}:{}", stream_.path().string(), line_number_);
}

bool LineReader::refill() {
  buffer_.resize(kChunkBytes);
  pos_ = 0;
  buffer_.resize(stream_.read(std::as_writable_bytes(std::span(buffer_)), place()));
  return !buffer_.empty();
}

bool LineReader::next(std::string* line) {
  line->clear();
  ++line_number_;
  if (pos_ == buffer_.size() && !refill()) {
    --line_number_;
    return false;
  }
  while (true) {
    const size_t newline = buffer_.find('\n', pos_);
    const size_t end = std::min(newline, buffer_.size());
    if (line->size() + (end - pos_) > max_line_bytes_) {
      fail(ErrorCode::kCorrupt, "{}: the line is longer than {} bytes", place(), max_line_bytes_);
    }
    line->append(buffer_, pos_, end - pos_);
    pos_ = end;
    if (newline != std::string::npos) {
      ++pos_;
      break;
    }
    if (!refill()) break;
  }
  if (!line->empty() && line->back() == '\r') line->pop_back();
  return true;
}

}  // namespace trefoil
