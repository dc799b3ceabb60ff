// Shows a reply while it comes, its parts apart. Control characters of the model are written out.
#pragma once

#include <functional>
#include <string_view>

#include "trefoil/conversation.h"

namespace trefoil::cli {

class ReplyPrinter {
 public:
  struct Style {
    bool dims_reasoning = false;  // else parts have headings, "[reasoning]"
    bool hides_reasoning = false;
  };
  using Write = std::function<void(std::string_view)>;

  ReplyPrinter(const Style& style, Write write) : style_(style), write_(std::move(write)) {}

  void show(ReplyPart part, std::string_view text);
  // The end of a reply; the next one begins a new line.
  void end();

 private:
  void begin(ReplyPart part);

  Style style_;
  Write write_;
  bool has_begun_ = false;
  ReplyPart part_ = ReplyPart::kAnswer;
  bool at_line_start_ = true;
};

}  // namespace trefoil::cli
