// The wire form of the chat format's elements. docs/chat.md, "Elements".
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trefoil/chat.h"

namespace trefoil {

inline constexpr std::string_view kOpen = "<|open|>";
inline constexpr std::string_view kClose = "<|close|>";
inline constexpr std::string_view kSep = "<|sep|>";
inline constexpr std::string_view kEndOfMessage = "<|end_of_msg|>";

using ChatAttribute = std::pair<std::string_view, std::string_view>;  // key, value before escaping

class SegmentWriter {
 public:
  void markup(std::string_view text) { segments_.push_back({std::string(text), true}); }
  // Empty text leaves no segment.
  void text(std::string_view text);

  void open(std::string_view tag, std::initializer_list<ChatAttribute> attributes = {});
  void close(std::string_view tag);
  void end_message();
  // A whole message of the system with a `type`.
  void system_message(std::string_view type, std::string_view body);

  std::vector<ChatSegment> take() { return std::move(segments_); }

 private:
  std::vector<ChatSegment> segments_;
};

}  // namespace trefoil
