// Conversations in Kimi-K3's chat format: roles, reasoning, tools and their calls, as the release's own encoder lays
// them out (revision 9f62e4e9fffbd0a83ddd60e1c209d828994b3569). docs/chat.md describes the format.
//
// A conversation becomes a list of segments, and every segment is encoded on its own: markup, whose special tokens this
// code wrote, and text, in which special tokens' names are ordinary characters. So no message, tool result or name can
// forge a turn. Joining segments before encoding would give other ids.
//
// JSON is passed as text, so that numbers and the order of keys stay as given.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trefoil/error.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

struct ChatSegment {
  std::string text;
  bool is_markup = false;
  bool operator==(const ChatSegment&) const = default;
};

enum class ChatRole { kSystem, kUser, kAssistant, kTool };

// A piece of a message's content: text, or the place of the next image.
struct ChatPart {
  std::string text;
  bool is_image = false;
};

struct ChatToolCall {
  std::string id;  // matches the tool_call_id of results; never in the prompt
  std::string name;
  std::string arguments;  // a JSON object; blank: none; text that is no JSON is passed on as it is
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::vector<ChatPart> content;
  std::string name;                      // system, user and assistant: the speaker; tool: the tool, after `tool`
  std::string reasoning;                 // assistant; blank: an empty think element
  std::vector<ChatToolCall> tool_calls;  // assistant
  std::string tool_call_id;              // tool: which call this answers
  std::string tool;                      // tool: its name; when both are empty, that of the call it answers
  std::string tools;                     // system: a JSON array of tools declared from here on; replaces the content
};

enum class ToolChoice { kAuto, kRequired, kNone };

struct ImageSize {
  int64_t width = 0;  // pixels of the original, before any resizing
  int64_t height = 0;
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::string tools;            // a JSON array, declared first; empty: none
  bool thinking = true;         // false: no think elements, and the answer opens with its response
  std::string thinking_effort;  // "low", "high" or "max"; empty: not said. The vendor's own entry point says "max"
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string response_format;        // a JSON object of type "text", "json_object" or "json_schema"; empty: free
  std::vector<ImageSize> images;      // one for each image part, in order
  bool image_placeholders = false;    // kImagePlaceholder in content is an image too: for text you wrote yourself only
  bool add_generation_prompt = true;  // end with the opening of the assistant's answer
};

inline constexpr std::string_view kImagePlaceholder = "<|kimi_image_placeholder|>";

// What holds where an object does not say.
struct ChatDefaults {
  bool thinking = true;
  std::string_view thinking_effort = {};
  bool add_generation_prompt = true;
};

// Reads an object with "messages" and, if present, "tools", "thinking", "thinking_effort", "tool_choice",
// "response_format" and "add_generation_prompt", in the shape of OpenAI's chat completions; other keys are ignored.
// Assistant messages may carry "reasoning_content" or "reasoning", tool messages "tool" or "name", system messages
// "tools". `images` and image_placeholders are the caller's to fill.
// Error(kInvalidArgument) naming the message for JSON that is malformed, repeats a key or has the wrong shape;
// Error(kUnsupported) for roles and content that the format does not know.
ChatRequest parse_chat_request(std::string_view json, const ChatDefaults& defaults = {});

// Error(kInvalidArgument) for an effort the format does not know, arguments that are JSON but no object, a tool result
// whose tool cannot be told, tools or a response format that are not what they should be, and a number of images other
// than that of their places.
std::vector<ChatSegment> render_chat(const ChatRequest& request);

// The ids of the segments, each encoded on its own. Error(kUnsupported) when the tokenizer lacks a special token that
// the markup needs.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatSegment> segments);

}  // namespace trefoil
