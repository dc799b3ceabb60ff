// Strict reading of JSON that may be hostile, over simdjson, and the one JSON string writer of the streaming writers.
// Private to src/checkpoint. Values are views into the document and live as long as it does.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trefoil {

// A parsed document. The whole text is validated: UTF-8, structure, numbers, nothing after the value. Unlike most JSON
// libraries it keeps repeated keys, and readers here refuse them.
class JsonDocument {
 public:
  // `subject` ("FILE" or "FILE: header") starts every message. Copies the text (simdjson reads past the end).
  JsonDocument(std::string_view text, std::string subject);
  // The same without the copy: `text` must have simdjson::SIMDJSON_PADDING spare bytes of capacity.
  JsonDocument(const std::string& padded_text, std::string subject);

  simdjson::dom::element root() const { return root_; }
  const std::string& subject() const { return subject_; }

  // The value as the type, or Error(kCorrupt) "SUBJECT: WHAT is not an object".
  simdjson::dom::object object(simdjson::dom::element value, std::string_view what) const;
  simdjson::dom::array array(simdjson::dom::element value, std::string_view what) const;
  std::string_view string(simdjson::dom::element value, std::string_view what) const;
  // A non-negative integer below 2^63, written as an integer.
  uint64_t size(simdjson::dom::element value, std::string_view what) const;

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
  std::string subject_;
};

// Appends `text` as a JSON string with quotes. Error(kInvalidArgument) when it is not UTF-8.
void append_json_string(std::string& out, std::string_view text);

// `text` for a message: as a JSON string, so that control characters of a hostile file never reach a terminal, and cut
// after 200 bytes.
std::string quoted(std::string_view text);

// Names of tensors and shards go into messages and files: empty ones and ones with control characters are refused.
bool is_printable_name(std::string_view name);

}  // namespace trefoil
