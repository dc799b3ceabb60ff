#include "cli/chat_line.h"

#include <gtest/gtest.h>

#include "trefoil/error.h"

namespace trefoil::cli {
namespace {

using Kind = ChatLine::Kind;

void expect_line(std::string_view line, Kind kind, const std::string& text = "") {
  const ChatLine parsed = parse_chat_line(line);
  EXPECT_EQ(parsed.kind, kind) << line;
  EXPECT_EQ(parsed.text, text) << line;
}

TEST(ChatLine, TellsCommandsFromWhatIsSaid) {
  expect_line("", Kind::kNothing);
  expect_line(" \t\r", Kind::kNothing);
  expect_line("Hello.", Kind::kSay, "Hello.");
  expect_line("  kept as it is \r", Kind::kSay, "  kept as it is ");
  expect_line("//etc is a folder", Kind::kSay, "/etc is a folder");
  expect_line(" /exit", Kind::kSay, " /exit");
  expect_line("/exit", Kind::kExit);
  expect_line("/quit ", Kind::kExit);
  expect_line("/reset\r", Kind::kReset);
  expect_line("/stats", Kind::kStats);
  expect_line("/help", Kind::kHelp);
  expect_line("/save  a file with blanks ", Kind::kSave, "a file with blanks");
  expect_line("/load\t~/talk", Kind::kLoad, "~/talk");
}

TEST(ChatLine, RefusesWhatIsNoCommand) {
  for (const char* line : {"/", "/etc/passwd", "/saved x", "/save", "/load  ", "/exit now", "/EXIT"})
    EXPECT_THROW(parse_chat_line(line), Error) << line;
}

}  // namespace
}  // namespace trefoil::cli
