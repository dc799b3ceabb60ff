// Text from files and arguments on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace trefoil::cli {

// Names in a message must not move a terminal's cursor or end its line: every control character, those that UTF-8
// writes in two bytes too, becomes \x1b and the like.
std::string terminal_text(std::string_view text);
// The same for text of several lines, as a model writes it: line breaks and tabs stay.
std::string terminal_lines(std::string_view text);

}  // namespace trefoil::cli
