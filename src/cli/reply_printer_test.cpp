#include "cli/reply_printer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trefoil::cli {
namespace {

using Pieces = std::vector<std::pair<ReplyPart, std::string>>;

constexpr ReplyPart kReasoning = ReplyPart::kReasoning, kAnswer = ReplyPart::kAnswer, kCall = ReplyPart::kToolCall;

std::string printed(const ReplyPrinter::Style& style, const Pieces& pieces) {
  std::string out;
  ReplyPrinter printer(style, [&](std::string_view text) { out += text; });
  for (int reply = 0; reply < 2; ++reply) {
    for (const auto& [part, text] : pieces) printer.show(part, text);
    printer.end();
    if (reply == 0) out += "~";
  }
  const size_t half = out.find('~');
  EXPECT_EQ(out.substr(0, half), out.substr(half + 1));  // the second reply looks as the first
  return out.substr(0, half);
}

TEST(ReplyPrinter, PartsHaveHeadings) {
  EXPECT_EQ(printed({}, {{kReasoning, "a"}, {kReasoning, "b\n"}, {kAnswer, "c"}, {kCall, "f {}"}, {kCall, "g {}"}}),
            "[reasoning]\nab\n\n[answer]\nc\n\n[tool call]\nf {}\n\n[tool call]\ng {}\n");
  EXPECT_EQ(printed({}, {}), "");
}

TEST(ReplyPrinter, DimsReasoningPieceByPiece) {
  EXPECT_EQ(printed({.dims_reasoning = true}, {{kReasoning, "a"}, {kReasoning, "b"}, {kAnswer, "c\n"}}),
            "\033[2ma\033[22m\033[2mb\033[22m\n\nc\n");
}

TEST(ReplyPrinter, HidesReasoning) {
  EXPECT_EQ(printed({.hides_reasoning = true}, {{kReasoning, "a"}, {kAnswer, "b"}}), "b\n");
}

TEST(ReplyPrinter, AModelCannotSendATerminalCommands) {
  EXPECT_EQ(printed({.dims_reasoning = true}, {{kReasoning, "\x1b[0m"}, {kAnswer, "\x1b]0;title\x07\n\t\r"}}),
            "\033[2m\\x1b[0m\033[22m\n\n\\x1b]0;title\\x07\n\t\\x0d\n");
}

}  // namespace
}  // namespace trefoil::cli
