#include "checkpoint/json_text.h"

#include <algorithm>
#include <utility>

namespace trefoil {

using simdjson::dom::element;

JsonDocument::JsonDocument(std::string_view text, std::string subject) : subject_(std::move(subject)) {
  if (const auto error = parser_.parse(text.data(), text.size(), /*realloc_if_needed=*/true).get(root_)) {
    fail(ErrorCode::kCorrupt, "{}: not valid JSON: {}", subject_, simdjson::error_message(error));
  }
}

JsonDocument::JsonDocument(const std::string& padded_text, std::string subject) : subject_(std::move(subject)) {
  const bool is_padded = padded_text.capacity() - padded_text.size() >= simdjson::SIMDJSON_PADDING;
  if (const auto error = parser_.parse(padded_text.data(), padded_text.size(), !is_padded).get(root_)) {
    fail(ErrorCode::kCorrupt, "{}: not valid JSON: {}", subject_, simdjson::error_message(error));
  }
}

simdjson::dom::object JsonDocument::object(element value, std::string_view what) const {
  simdjson::dom::object result;
  if (value.get(result)) fail(ErrorCode::kCorrupt, "{}: {} is not an object", subject_, what);
  return result;
}

simdjson::dom::array JsonDocument::array(element value, std::string_view what) const {
  simdjson::dom::array result;
  if (value.get(result)) fail(ErrorCode::kCorrupt, "{}: {} is not an array", subject_, what);
  return result;
}

std::string_view JsonDocument::string(element value, std::string_view what) const {
  std::string_view result;
  if (value.get(result)) fail(ErrorCode::kCorrupt, "{}: {} is not a string", subject_, what);
  return result;
}

uint64_t JsonDocument::size(element value, std::string_view what) const {
  int64_t result = 0;
  if (value.get(result) || result < 0) {
    fail(ErrorCode::kCorrupt, "{}: {} is not a non-negative 63-bit integer", subject_, what);
  }
  return static_cast<uint64_t>(result);
}

void append_json_string(std::string& out, std::string_view text) {
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    fail(ErrorCode::kInvalidArgument, "a name or value to be written as JSON is not UTF-8");
  }
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string quoted(std::string_view text) {
  constexpr size_t kLongest = 200;
  size_t size = std::min(text.size(), kLongest);
  while (size < text.size() && size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0u) == 0x80u) --size;
  std::string out;
  append_json_string(out, text.substr(0, size));
  return size < text.size() ? out + "..." : out;
}

bool is_printable_name(std::string_view name) {
  return !name.empty() && std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

}  // namespace trefoil
