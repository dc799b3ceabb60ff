#include "cli/reply_printer.h"

#include "cli/terminal_text.h"

namespace trefoil::cli {
namespace {

// Faint, and ordinary intensity (ECMA-48, SGR).
constexpr std::string_view kFaint = "\033[2m", kOrdinary = "\033[22m";

std::string_view heading(ReplyPart part) {
  switch (part) {
    case ReplyPart::kReasoning:
      return "[reasoning]\n";
    case ReplyPart::kAnswer:
      return "[answer]\n";
    case ReplyPart::kToolCall:
      return "[tool call]\n";
  }
  return "";
}

}  // namespace

void ReplyPrinter::show(ReplyPart part, std::string_view text) {
  if (text.empty() || (part == ReplyPart::kReasoning && style_.hides_reasoning)) return;
  if (!has_begun_ || part != part_ || part == ReplyPart::kToolCall) begin(part);
  std::string shown = terminal_lines(text);
  at_line_start_ = shown.back() == '\n';
  // Each piece ends what it began: a program that is ended at once leaves the terminal as it was.
  if (part == ReplyPart::kReasoning && style_.dims_reasoning)
    shown = std::string(kFaint) + shown + std::string(kOrdinary);
  write_(shown);
}

void ReplyPrinter::begin(ReplyPart part) {
  if (has_begun_) write_(at_line_start_ ? "\n" : "\n\n");
  const bool needs_heading = part == ReplyPart::kToolCall || (!style_.dims_reasoning && !style_.hides_reasoning);
  if (needs_heading) write_(heading(part));
  has_begun_ = true;
  part_ = part;
}

void ReplyPrinter::end() {
  if (!at_line_start_) write_("\n");
  has_begun_ = false;
  at_line_start_ = true;
}

}  // namespace trefoil::cli
