#include "model/stop_strings.h"

#include <algorithm>

#include "base/error.h"

namespace trefoil {
namespace {

// Bytes at the end of `text` that begin `stop`, all of `stop` at most.
size_t overlap(std::string_view text, std::string_view stop) {
  size_t length = std::min(text.size(), stop.size());
  while (length > 0 && text.substr(text.size() - length) != stop.substr(0, length)) --length;
  return length;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  if (std::any_of(stops_.begin(), stops_.end(), [](const std::string& stop) { return stop.empty(); })) {
    fail(ErrorCode::kInvalidArgument, "a stop string is empty: it would stop everything");
  }
  // Longest first, so that the first match is the one to report.
  std::stable_sort(stops_.begin(), stops_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string StopStrings::push(std::string_view piece) {
  std::string shown;
  for (const char byte : piece) {
    if (matched_) break;
    held_ += byte;
    size_t keep = 0;
    for (const std::string& stop : stops_) {
      const size_t length = overlap(held_, stop);
      keep = std::max(keep, length);
      if (length == stop.size()) {
        matched_ = stop;
        break;
      }
    }
    if (matched_) keep = matched_->size();
    shown.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
  }
  return shown;
}

std::string StopStrings::flush() {
  return matched_ ? std::string() : std::exchange(held_, {});
}

}  // namespace trefoil
