#include "cli/chat_line.h"

#include <fmt/format.h>

#include "trefoil/error.h"

namespace trefoil::cli {
namespace {

using Kind = ChatLine::Kind;

constexpr std::string_view kBlanks = " \t\r";

struct Command {
  std::string_view name;
  Kind kind;
  bool takes_file;
};

constexpr Command kCommands[] = {{"/exit", Kind::kExit, false},   {"/quit", Kind::kExit, false},
                                 {"/reset", Kind::kReset, false}, {"/save", Kind::kSave, true},
                                 {"/load", Kind::kLoad, true},    {"/stats", Kind::kStats, false},
                                 {"/help", Kind::kHelp, false}};

std::string_view stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

ChatLine parse_chat_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (stripped(line).empty()) return {};
  if (line.starts_with("//")) return {Kind::kSay, std::string(line.substr(1))};
  if (!line.starts_with('/')) return {Kind::kSay, std::string(line)};
  const std::string_view name = line.substr(0, line.find_first_of(kBlanks));
  const std::string_view rest = stripped(line.substr(name.size()));
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    if (command.takes_file == rest.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} {}", name, command.takes_file ? "needs a file" : "takes nothing behind it"));
    }
    return {command.kind, std::string(rest)};
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: no such command. {}", name, kChatHelp));
}

}  // namespace trefoil::cli
