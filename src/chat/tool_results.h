// Which tool a tool message speaks for, and in which order the results of one turn stand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trefoil/chat.h"

namespace trefoil {

// A message in the order in which it is rendered. For tool messages: the tool's name, and which result it is since the
// last assistant message, from 1.
struct ToolResolvedMessage {
  const ChatMessage* message = nullptr;
  std::string tool;
  int64_t index = 0;
};

// A run of tool messages is matched by tool_call_id with the calls of the latest assistant message. When every one
// matches, results stand in the order of the calls (equal ones as given) and bear the calls' names. Otherwise the run
// stays, and a name is that of `tool`, of `name`, or of the call with the result's index.
// Error(kInvalidArgument) for a result whose tool cannot be told.
std::vector<ToolResolvedMessage> resolve_tool_results(std::span<const ChatMessage> messages);

}  // namespace trefoil
