#include "chat/segment_writer.h"

namespace trefoil {
namespace {

// "<" and ">" stay: text mode keeps them from being markup.
std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void SegmentWriter::text(std::string_view text) {
  if (!text.empty()) segments_.push_back({std::string(text), false});
}

void SegmentWriter::open(std::string_view tag, std::initializer_list<ChatAttribute> attributes) {
  markup(kOpen);
  text(tag);
  for (const auto& [key, value] : attributes) {
    text(" " + std::string(key));
    text("=\"");
    text(escaped(value));
    text("\"");
  }
  markup(kSep);
}

void SegmentWriter::close(std::string_view tag) {
  markup(kClose);
  text(tag);
  markup(kSep);
}

void SegmentWriter::end_message() {
  close("message");
  markup(kEndOfMessage);
}

void SegmentWriter::system_message(std::string_view type, std::string_view body) {
  open("message", {{"role", "system"}, {"type", type}});
  text(body);
  end_message();
}

}  // namespace trefoil
