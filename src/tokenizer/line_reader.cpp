#include "tokenizer/line_reader.h"

#include <algorithm>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr uint64_t kChunkBytes = 1 << 20;

}  // namespace

std::string LineReader::place() const {
  return fmt::format("{}:{}", file_.path().string(), line_number_);
}

void LineReader::refill() {
  buffer_.resize(std::min(kChunkBytes, file_.size() - offset_));
  pos_ = 0;
  file_.read_at(offset_, {reinterpret_cast<std::byte*>(buffer_.data()), buffer_.size()});
  offset_ += buffer_.size();
}

bool LineReader::next(std::string* line) {
  line->clear();
  if (pos_ == buffer_.size() && offset_ == file_.size()) return false;
  ++line_number_;
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
    if (offset_ == file_.size()) break;
    refill();
  }
  if (!line->empty() && line->back() == '\r') line->pop_back();
  return true;
}

}  // namespace trefoil
