// A line that a person types in `chat`: something to say, or a command.
#pragma once

#include <string>
#include <string_view>

namespace trefoil::cli {

struct ChatLine {
  enum class Kind { kNothing, kSay, kExit, kReset, kSave, kLoad, kStats, kHelp };
  Kind kind = Kind::kNothing;
  std::string text;  // kSay: the message; kSave, kLoad: the file
};

// "/save FILE" and the like are commands; "//" begins a message that begins with "/". Blank lines are nothing.
// Error(kInvalidArgument) for another word behind "/", and for a command with too little or too much behind it.
ChatLine parse_chat_line(std::string_view line);

inline constexpr std::string_view kChatHelp =
    "/exit  /reset  /save FILE  /load FILE  /stats  /help; // begins a message that begins with /; Ctrl-C stops a "
    "reply, at the prompt it leaves";

}  // namespace trefoil::cli
