#include <fmt/format.h>

#include "base/error.h"
#include "chat/json_value.h"
#include "trefoil/chat.h"

namespace trefoil {
namespace {

using Kind = JsonValue::Kind;

// A member that is neither absent nor null.
const JsonValue* present(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value == nullptr || value->kind == Kind::kNull ? nullptr : value;
}

const JsonValue* present(const JsonValue& object, std::string_view key, Kind kind, std::string_view shape) {
  const JsonValue* value = present(object, key);
  if (value != nullptr && value->kind != kind) fail(ErrorCode::kInvalidArgument, "\"{}\" is not {}", key, shape);
  return value;
}

std::string optional_string(const JsonValue& object, std::string_view key, std::string_view otherwise = {}) {
  const JsonValue* value = present(object, key, Kind::kString, "a string");
  return value == nullptr ? std::string(otherwise) : value->text;
}

bool optional_boolean(const JsonValue& object, std::string_view key, bool otherwise) {
  const JsonValue* value = present(object, key, Kind::kBoolean, "true or false");
  return value == nullptr ? otherwise : value->boolean;
}

// As text; an empty list of tools is none.
std::string optional_tools(const JsonValue& object) {
  const JsonValue* tools = present(object, "tools", Kind::kArray, "an array");
  return tools == nullptr || tools->items.empty() ? std::string() : write_json(*tools, kDefaultJson);
}

std::string optional_object(const JsonValue& object, std::string_view key) {
  const JsonValue* value = present(object, key, Kind::kObject, "an object");
  return value == nullptr ? std::string() : write_json(*value, kDefaultJson);
}

ChatPart parse_content_part(const JsonValue& part) {
  const std::string type = optional_string(part, "type");
  if (type == "image" || type == "image_url") return {{}, true};
  if (type != "text") {
    fail(ErrorCode::kUnsupported, "a part of \"content\" whose \"type\" is not text, image or image_url");
  }
  const JsonValue* text = present(part, "text", Kind::kString, "a string");
  if (text == nullptr) fail(ErrorCode::kInvalidArgument, "a part of \"content\" has no \"text\"");
  return {text->text, false};
}

std::vector<ChatPart> parse_content(const JsonValue& message, bool is_optional) {
  const JsonValue* content = present(message, "content");
  if (content == nullptr) {
    if (!is_optional) fail(ErrorCode::kInvalidArgument, "no \"content\"");
    return {};
  }
  if (content->kind == Kind::kString) return {{content->text, false}};
  if (content->kind != Kind::kArray) {
    fail(ErrorCode::kInvalidArgument, "\"content\" is neither a string nor a list of parts");
  }
  std::vector<ChatPart> parts;
  for (const JsonValue& part : content->items) parts.push_back(parse_content_part(part));
  return parts;
}

ChatToolCall parse_tool_call(const JsonValue& call) {
  const JsonValue* function = present(call, "function", Kind::kObject, "an object");
  if (function == nullptr) fail(ErrorCode::kInvalidArgument, "a tool call has no \"function\"");
  ChatToolCall parsed{optional_string(call, "id"), optional_string(*function, "name"), {}};
  if (parsed.name.empty()) fail(ErrorCode::kInvalidArgument, "a tool call's \"function\" has no \"name\"");
  if (const JsonValue* arguments = present(*function, "arguments")) {
    parsed.arguments = arguments->kind == Kind::kString ? arguments->text : write_json(*arguments, kDefaultJson);
  }
  return parsed;
}

ChatRole parse_role(const JsonValue& message) {
  const std::string role = optional_string(message, "role");
  if (role == "system") return ChatRole::kSystem;
  if (role == "user") return ChatRole::kUser;
  if (role == "assistant") return ChatRole::kAssistant;
  if (role == "tool") return ChatRole::kTool;
  if (role.empty()) fail(ErrorCode::kInvalidArgument, "no \"role\"");
  fail(ErrorCode::kUnsupported, "a \"role\" other than system, user, assistant and tool");
}

ChatMessage parse_message(const JsonValue& json) {
  if (json.kind != Kind::kObject) fail(ErrorCode::kInvalidArgument, "not an object");
  ChatMessage message;
  message.role = parse_role(json);
  message.name = optional_string(json, "name");
  switch (message.role) {
    case ChatRole::kSystem:
      message.tools = optional_tools(json);
      break;
    case ChatRole::kUser:
      break;
    case ChatRole::kAssistant:
      message.reasoning = optional_string(json, "reasoning_content");
      if (message.reasoning.empty()) message.reasoning = optional_string(json, "reasoning");
      if (const JsonValue* calls = present(json, "tool_calls", Kind::kArray, "an array")) {
        for (const JsonValue& call : calls->items) message.tool_calls.push_back(parse_tool_call(call));
      }
      break;
    case ChatRole::kTool:
      message.tool_call_id = optional_string(json, "tool_call_id");
      message.tool = optional_string(json, "tool");
      break;
  }
  message.content = parse_content(json, message.role == ChatRole::kAssistant || !message.tools.empty());
  return message;
}

ToolChoice parse_tool_choice(const JsonValue& request) {
  const JsonValue* value = present(request, "tool_choice");
  if (value == nullptr) return ToolChoice::kAuto;
  if (value->kind == Kind::kString && value->text == "auto") return ToolChoice::kAuto;
  if (value->kind == Kind::kString && value->text == "required") return ToolChoice::kRequired;
  if (value->kind == Kind::kString && value->text == "none") return ToolChoice::kNone;
  fail(ErrorCode::kUnsupported, "a \"tool_choice\" other than auto, required and none");
}

}  // namespace

ChatRequest parse_chat_request(std::string_view json, const ChatDefaults& defaults) {
  const JsonValue root = parse_json(json, RepeatedKeys::kRefuse);
  if (root.kind != Kind::kObject) fail(ErrorCode::kInvalidArgument, "expected an object with \"messages\"");
  const JsonValue* messages = present(root, "messages", Kind::kArray, "an array");
  if (messages == nullptr || messages->items.empty()) fail(ErrorCode::kInvalidArgument, "no \"messages\"");
  ChatRequest request;
  for (size_t i = 0; i < messages->items.size(); ++i) {
    try {
      request.messages.push_back(parse_message(messages->items[i]));
    } catch (const Error& error) {
      fail(error.code(), "messages[{}]: {}", i, error.what());
    }
  }
  request.tools = optional_tools(root);
  request.thinking = optional_boolean(root, "thinking", defaults.thinking);
  request.thinking_effort = optional_string(root, "thinking_effort", defaults.thinking_effort);
  request.tool_choice = parse_tool_choice(root);
  request.response_format = optional_object(root, "response_format");
  request.add_generation_prompt = optional_boolean(root, "add_generation_prompt", defaults.add_generation_prompt);
  return request;
}

}  // namespace trefoil
