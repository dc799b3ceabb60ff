// What the split pattern needs to know about a code point, in one byte. Unicode 16.0.0, the version of the reference's
// regex engine; the table is made by tools/unicode/generate.py, and tools/unicode/check_tiktoken.py compares it with
// that engine for every code point.
#pragma once

#include <cstdint>

namespace trefoil {

// Han means the Script property, not Script_Extensions: U+3001 IDEOGRAPHIC COMMA is kOther.
enum CharClass : uint8_t {
  kOther,      // punctuation, symbols, controls, unassigned
  kSpace,      // U+0020
  kNewline,    // \r and \n
  kBlank,      // other White_Space, U+0085, U+00A0 and U+3000 among them
  kUpper,      // Lu, Lt
  kLower,      // Ll
  kLetter,     // Lm, Lo outside Han: letters without case
  kMark,       // M outside Han
  kNumber,     // N outside Han
  kHanLetter,  // Han and L
  kHanNumber,  // Han and N, such as U+3007
  kHanOther,   // Han and neither: radicals, two marks
};

inline constexpr uint32_t class_bit(CharClass c) {
  return 1u << c;
}

namespace unicode {
#include "tokenizer/unicode_table.inc"
}  // namespace unicode

inline CharClass char_class(char32_t code_point) {
  const uint32_t block = unicode::kClassIndex[code_point / unicode::kClassBlockSize];
  return static_cast<CharClass>(
      unicode::kClassBlocks[block * unicode::kClassBlockSize + code_point % unicode::kClassBlockSize]);
}

// What Python's str.isspace and str.strip call a space: White_Space and U+001C to U+001F.
inline bool is_python_space(char32_t code_point) {
  constexpr uint32_t kWhiteSpace = class_bit(kSpace) | class_bit(kNewline) | class_bit(kBlank);
  return (class_bit(char_class(code_point)) & kWhiteSpace) != 0 || (code_point >= 0x1C && code_point <= 0x1F);
}

}  // namespace trefoil
