#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "chat/json_value.h"
#include "chat/segment_writer.h"
#include "chat/tool_results.h"
#include "tokenizer/unicode_class.h"
#include "tokenizer/utf8.h"
#include "trefoil/chat.h"

namespace trefoil {
namespace {

using Kind = JsonValue::Kind;

// As Python's str.strip leaves nothing. Text that is not UTF-8 is not blank; encode_chat() refuses it.
bool is_blank(std::string_view text) {
  if (find_invalid_utf8(text) != std::string::npos) return false;
  for (size_t pos = 0; pos < text.size();) {
    if (!is_python_space(next_code_point(text, &pos))) return false;
  }
  return true;
}

JsonValue parse_part(std::string_view json, Kind kind, std::string_view what, std::string_view shape) {
  JsonValue value;
  try {
    value = parse_json(json, RepeatedKeys::kLastWins);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidArgument, "{}: {}", what, error.what());
  }
  if (value.kind != kind) fail(ErrorCode::kInvalidArgument, "{}: expected {}", what, shape);
  return value;
}

std::string declared_tools(std::string_view json) {
  return write_json(parse_part(json, Kind::kArray, "tools", "an array"), kCompactSortedJson);
}

std::string first_declaration(std::string_view tools) {
  return fmt::format("# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{}\n```",
                     declared_tools(tools));
}

std::string later_declaration(std::string_view tools) {
  return fmt::format(
      "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
      "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n"
      "```json\n{}\n```",
      declared_tools(tools));
}

// The text names `medium`, which the release's encoder refuses all the same.
std::string effort_body(std::string_view effort) {
  if (effort != "low" && effort != "high" && effort != "max") {
    fail(ErrorCode::kInvalidArgument, "thinking_effort \"{}\": low, high or max", effort);
  }
  return fmt::format(
      "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
      "supported values include `low`, `medium`, `high`, and `max`.\n"
      "Now the system is invoked with `thinking_effort={}`.",
      effort);
}

std::string_view tool_choice_body(ToolChoice choice) {
  return choice == ToolChoice::kRequired
             ? "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message."
             : "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.";
}

// The schema itself may stand in .json_schema.schema, in .json_schema.json_schema or be .json_schema.
const JsonValue& schema_of(const JsonValue& format) {
  const JsonValue* outer = format.find("json_schema");
  if (outer == nullptr) fail(ErrorCode::kInvalidArgument, "response_format: no \"json_schema\"");
  for (const std::string_view key : {"schema", "json_schema"}) {
    if (const JsonValue* schema = outer->find(key)) return *schema;
  }
  return *outer;
}

// Empty for free text.
std::string response_format_body(std::string_view json) {
  const JsonValue format = parse_part(json, Kind::kObject, "response_format", "an object");
  const JsonValue* type = format.find("type");
  const std::string_view name = type != nullptr ? std::string_view(type->text) : "";
  if (name == "text") return {};
  if (name != "json_object" && name != "json_schema") {
    fail(ErrorCode::kInvalidArgument, "response_format: \"type\" is text, json_object or json_schema");
  }
  std::string body = fmt::format(
      "The system is invoked with `response_format={}`.\n"
      "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting.",
      name);
  if (name == "json_object") return body;
  return body + fmt::format("\nThe JSON data must match the following schema:\n```json\n{}\n```",
                            write_json(schema_of(format), kCompactSortedJson));
}

std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBoolean:
      return "boolean";
    case Kind::kInteger:
    case Kind::kNumber:
      return "number";
    case Kind::kString:
      return "string";
    case Kind::kArray:
      return "array";
    case Kind::kObject:
      return "object";
  }
  return "";
}

class ChatRenderer {
 public:
  explicit ChatRenderer(const ChatRequest& request) : request_(request) {}

  std::vector<ChatSegment> run() {
    if (!request_.tools.empty()) out_.system_message("tool-declare", first_declaration(request_.tools));
    if (request_.thinking && !request_.thinking_effort.empty()) {
      out_.system_message("thinking-effort", effort_body(request_.thinking_effort));
    }
    for (const ToolResolvedMessage& message : resolve_tool_results(request_.messages)) render(message);
    if (request_.tool_choice != ToolChoice::kAuto) {
      out_.system_message("tool-choice", tool_choice_body(request_.tool_choice));
    }
    render_response_format();
    if (request_.add_generation_prompt) {
      out_.open("message", {{"role", "assistant"}});
      out_.open(request_.thinking ? "think" : "response");
    }
    if (next_image_ != request_.images.size()) {
      fail(ErrorCode::kInvalidArgument, "{} images for {} places", request_.images.size(), next_image_);
    }
    return out_.take();
  }

 private:
  void render_response_format() {
    if (request_.response_format.empty()) return;
    const std::string body = response_format_body(request_.response_format);
    if (!body.empty()) out_.system_message("response-format", body);
  }

  void render(const ToolResolvedMessage& resolved) {
    const ChatMessage& message = *resolved.message;
    switch (message.role) {
      case ChatRole::kSystem:
        if (!message.tools.empty()) return out_.system_message("tool-declare", later_declaration(message.tools));
        return render_plain("system", message);
      case ChatRole::kUser:
        return render_plain("user", message);
      case ChatRole::kAssistant:
        return render_assistant(message);
      case ChatRole::kTool:
        out_.open("message", {{"role", "tool"}, {"tool", resolved.tool}, {"index", fmt::to_string(resolved.index)}});
        render_content(message);
        return out_.end_message();
    }
  }

  void open_message(std::string_view role, const ChatMessage& message) {
    if (message.name.empty()) {
      out_.open("message", {{"role", role}});
    } else {
      out_.open("message", {{"role", role}, {"name", message.name}});
    }
  }

  void render_plain(std::string_view role, const ChatMessage& message) {
    open_message(role, message);
    render_content(message);
    out_.end_message();
  }

  void render_assistant(const ChatMessage& message) {
    open_message("assistant", message);
    if (request_.thinking) {
      out_.open("think");
      if (!is_blank(message.reasoning)) out_.text(message.reasoning);
      out_.close("think");
    }
    out_.open("response");
    render_content(message);
    out_.close("response");
    if (!message.tool_calls.empty()) {
      out_.open("tools");
      for (size_t i = 0; i < message.tool_calls.size(); ++i) render_call(message.tool_calls[i], i + 1);
      out_.close("tools");
    }
    out_.end_message();
  }

  void render_call(const ChatToolCall& call, size_t index) {
    out_.open("call", {{"tool", call.name}, {"index", fmt::to_string(index)}});
    if (!is_blank(call.arguments)) render_arguments(call);
    out_.close("call");
  }

  void render_arguments(const ChatToolCall& call) {
    JsonValue arguments;
    try {
      arguments = parse_json(call.arguments, RepeatedKeys::kLastWins);
    } catch (const Error&) {  // what a model wrote when it failed to write JSON
      out_.open("json", {{"type", "object"}});
      out_.text(call.arguments);
      return out_.close("json");
    }
    if (arguments.kind != Kind::kObject) {
      fail(ErrorCode::kInvalidArgument, "the arguments of a call are JSON of type {}, expected an object",
           type_name(arguments.kind));
    }
    for (size_t i = 0; i < arguments.keys.size(); ++i) render_argument(arguments.keys[i], arguments.items[i]);
  }

  void render_argument(std::string_view key, const JsonValue& value) {
    out_.open("argument", {{"key", key}, {"type", type_name(value.kind)}});
    out_.text(value.kind == Kind::kString ? value.text : write_json(value, kDefaultJson));
    out_.close("argument");
  }

  void render_content(const ChatMessage& message) {
    for (const ChatPart& part : message.content) {
      if (part.is_image) {
        render_image();
      } else {
        render_text(part.text);
      }
    }
  }

  void render_text(std::string_view text) {
    while (request_.image_placeholders) {
      const size_t place = text.find(kImagePlaceholder);
      if (place == std::string_view::npos) break;
      out_.text(text.substr(0, place));
      render_image();
      text.remove_prefix(place + kImagePlaceholder.size());
    }
    out_.text(text);
  }

  void render_image() {
    const size_t image = next_image_++;
    if (image >= request_.images.size()) return;  // counted, and refused at the end
    const ImageSize& size = request_.images[image];
    out_.markup(
        fmt::format("<|media_begin|>image {}x{}<|media_content|><|media_pad|><|media_end|>", size.width, size.height));
  }

  const ChatRequest& request_;
  SegmentWriter out_;
  size_t next_image_ = 0;
};

void require_special_tokens(const Tokenizer& tokenizer, std::string_view markup) {
  for (size_t begin = markup.find("<|"); begin != std::string_view::npos; begin = markup.find("<|", begin + 2)) {
    const std::string_view name = markup.substr(begin, markup.find("|>", begin) + 2 - begin);
    if (!tokenizer.special_id(name)) {
      fail(ErrorCode::kUnsupported, "the tokenizer has no special token {}, which the chat format needs", name);
    }
  }
}

}  // namespace

std::vector<ChatSegment> render_chat(const ChatRequest& request) {
  return ChatRenderer(request).run();
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatSegment> segments) {
  std::vector<int32_t> ids;
  for (const ChatSegment& segment : segments) {
    if (segment.is_markup) require_special_tokens(tokenizer, segment.text);
    const auto encoded = tokenizer.encode(segment.text, segment.is_markup ? EncodeMode::kMarkup : EncodeMode::kText);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  return ids;
}

}  // namespace trefoil
