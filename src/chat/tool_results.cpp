#include "chat/tool_results.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/error.h"

namespace trefoil {
namespace {

using Calls = std::span<const ChatToolCall>;

// For each message of the run the call it answers; nothing when one of them answers none.
std::optional<std::vector<size_t>> matched_calls(std::span<const ChatMessage> run, Calls calls) {
  std::unordered_map<std::string_view, size_t> call_of_id;
  for (size_t i = 0; i < calls.size(); ++i) call_of_id.emplace(calls[i].id, i);
  std::vector<size_t> matched;
  for (const ChatMessage& result : run) {
    const auto call = call_of_id.find(result.tool_call_id);
    if (result.tool_call_id.empty() || call == call_of_id.end()) return std::nullopt;
    matched.push_back(call->second);
  }
  return matched;
}

std::string unmatched_tool(const ChatMessage& result, Calls calls, int64_t index) {
  if (!result.tool.empty()) return result.tool;
  if (!result.name.empty()) return result.name;
  if (index <= static_cast<int64_t>(calls.size())) return calls[static_cast<size_t>(index - 1)].name;
  fail(ErrorCode::kInvalidArgument, "tool result {} since the last assistant message: it names no tool and no call",
       index);
}

// `before` results since the last assistant message came before this run.
void append_run(std::span<const ChatMessage> run, Calls calls, int64_t before, std::vector<ToolResolvedMessage>* out) {
  const auto matched = matched_calls(run, calls);
  std::vector<size_t> order(run.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (matched) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return (*matched)[a] < (*matched)[b]; });
  }
  for (const size_t i : order) {
    const int64_t index = ++before;
    out->push_back({&run[i], matched ? calls[(*matched)[i]].name : unmatched_tool(run[i], calls, index), index});
  }
}

}  // namespace

std::vector<ToolResolvedMessage> resolve_tool_results(std::span<const ChatMessage> messages) {
  std::vector<ToolResolvedMessage> resolved;
  Calls calls;
  int64_t results = 0;  // since the last assistant message
  for (size_t i = 0; i < messages.size();) {
    size_t end = i;
    while (end < messages.size() && messages[end].role == ChatRole::kTool) ++end;
    if (end > i) {
      append_run(messages.subspan(i, end - i), calls, results, &resolved);
      results += static_cast<int64_t>(end - i);
      i = end;
      continue;
    }
    if (messages[i].role == ChatRole::kAssistant) {
      calls = messages[i].tool_calls;
      results = 0;
    }
    resolved.push_back({&messages[i++], {}, 0});
  }
  return resolved;
}

}  // namespace trefoil
