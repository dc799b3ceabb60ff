#include "cli/terminal_text.h"

#include <fmt/format.h>

#include <iterator>

namespace trefoil::cli {

namespace {

std::string escaped(std::string_view text, std::string_view kept) {
  std::string shown;
  bool is_second = false;  // of U+0080 to U+009F
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool is_first = byte == 0xC2 && next >= 0x80 && next < 0xA0;
    const bool is_control = byte < 0x20 || byte == 0x7F || is_first || is_second;
    if (is_control && kept.find(text[i]) == std::string_view::npos)
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", byte);
    else
      shown += text[i];
    is_second = is_first;
  }
  return shown;
}

}  // namespace

std::string terminal_text(std::string_view text) {
  return escaped(text, "");
}

std::string terminal_lines(std::string_view text) {
  return escaped(text, "\n\t");
}

}  // namespace trefoil::cli
