// UTF-8, strictly (Unicode 16, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trefoil {

struct Utf8Char {
  enum class Kind : uint8_t {
    kValid,      // code_point, `size` bytes
    kMalformed,  // the `size` >= 1 bytes are a maximal subpart of an ill-formed sequence (Unicode 16, section 3.9)
    kCutOff,     // the text ends inside what may still become a character
  };
  Kind kind;
  uint8_t size;
  char32_t code_point;  // kValid only
};

// The character at the start of `text`, which is not empty.
Utf8Char next_utf8(std::string_view text);

// The code point at *pos, which is advanced behind it; for text that find_invalid_utf8() has passed.
inline char32_t next_code_point(std::string_view text, size_t* pos) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[*pos + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return ++*pos, lead;
  char32_t code_point;
  if (lead < 0xE0) {
    code_point = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    *pos += 2;
  } else if (lead < 0xF0) {
    code_point = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    *pos += 3;
  } else {
    code_point = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    *pos += 4;
  }
  return code_point;
}

// Offset of the first byte that is not part of a whole, well-formed character; npos when there is none.
size_t find_invalid_utf8(std::string_view text);

// Moves the characters of `bytes` to `out`, malformed sequences as U+FFFD, and keeps a beginning that may still become
// a character (at most three bytes) in `bytes`.
void take_whole_characters(std::string* bytes, std::string* out);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace trefoil
