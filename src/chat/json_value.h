// JSON as the chat format needs it: members in the order given, integers of any size to the digit, and text written as
// Python's json.dumps(ensure_ascii=False) writes it, which is what the model was trained on.
//
// Reading takes text from strangers: UTF-8 and structure are validated, nesting and the number of values are bounded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

struct JsonValue {
  enum class Kind { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  double number = 0;                   // kNumber
  std::string text = {};               // kString; kInteger: its digits
  std::vector<JsonValue> items = {};   // of an array, or the values of an object's members
  std::vector<std::string> keys = {};  // of an object, beside items; each once

  // The member's value; null when this is no object or has no such member.
  const JsonValue* find(std::string_view key) const;
};

enum class RepeatedKeys {
  kRefuse,
  kLastWins,  // at the place of the first, as in a Python dict
};

inline constexpr int kMaxJsonDepth = 128;
inline constexpr int kMaxJsonValues = 1'000'000;

// Error(kInvalidArgument) for text that is not JSON (naming the byte), a number outside the range of double, more than
// kMaxJsonDepth levels or kMaxJsonValues values, and, with kRefuse, a key that occurs twice in an object.
JsonValue parse_json(std::string_view text, RepeatedKeys repeated);

struct JsonStyle {
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
  bool sort_keys = false;  // by code point, at every level
};
inline constexpr JsonStyle kDefaultJson = {};
inline constexpr JsonStyle kCompactSortedJson = {",", ":", true};

std::string write_json(const JsonValue& value, const JsonStyle& style);

}  // namespace trefoil
