#include "cli/terminal_text.h"

#include <gtest/gtest.h>

namespace trefoil::cli {
namespace {

TEST(TerminalText, ControlCharactersAreWrittenOut) {
  EXPECT_EQ(terminal_text("a\x1b[2J\x7f\r\n\tb"), "a\\x1b[2J\\x7f\\x0d\\x0a\\x09b");
  EXPECT_EQ(terminal_text("\xC2\x9B"
                          "31m \xC2\xA0 ü 世"),
            "\\xc2\\x9b31m \xC2\xA0 ü 世");
  EXPECT_EQ(terminal_text(std::string_view("\0", 1)), "\\x00");
}

TEST(TerminalText, LinesKeepTheirEndsAndTabs) {
  EXPECT_EQ(terminal_lines("a\x1b]0;x\x07\r\n\tb"), "a\\x1b]0;x\\x07\\x0d\n\tb");
  EXPECT_EQ(terminal_lines("\xC2\x85"), "\\xc2\\x85");
}

}  // namespace
}  // namespace trefoil::cli
