// The Script property of a code point, Unicode 16.0.0 (tools/unicode/generate.py). For estimates of what languages a
// text is in; the tokenizer itself asks only whether a character is Han (unicode_class.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace trefoil {

// The number of the script in script_names(); -1 for what belongs to none: Common (digits, punctuation, blanks),
// Inherited (combining marks) and unassigned code points.
int script_of(char32_t code_point);

// "Latin", "Han", "Cyrillic", ... in alphabetical order.
std::span<const std::string_view> script_names();

}  // namespace trefoil
