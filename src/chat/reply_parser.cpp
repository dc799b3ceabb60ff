#include "chat/reply_parser.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "chat/segment_writer.h"
#include "tokenizer/utf8.h"

namespace trefoil {
namespace {

// A tag that is still open after this many bytes is text.
constexpr size_t kMaxTagBytes = size_t{1} << 16;

int32_t required_id(const Tokenizer& tokenizer, std::string_view name) {
  const std::optional<int32_t> id = tokenizer.special_id(name);
  if (!id) fail(ErrorCode::kUnsupported, "the tokenizer has no special token {}, which the chat format needs", name);
  return *id;
}

std::string whole_characters(std::string bytes) {
  std::string text;
  take_whole_characters(&bytes, &text);
  if (!bytes.empty()) text += kReplacementCharacter;
  return text;
}

void replace_all(std::string* text, std::string_view from, std::string_view to) {
  for (size_t at = text->find(from); at != std::string::npos; at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
  }
}

std::string unescaped(std::string value) {
  replace_all(&value, "&quot;", "\"");
  replace_all(&value, "&amp;", "&");
  return value;
}

std::string_view name_of(std::string_view tag) {
  return tag.substr(0, tag.find(' '));
}

// The value of ` key="value"`; empty when there is none.
std::string attribute(std::string_view tag, std::string_view key) {
  std::string_view rest = tag.substr(name_of(tag).size());
  while (rest.starts_with(' ')) {
    const size_t equals = rest.find("=\"");
    if (equals == std::string_view::npos) break;
    const size_t begin = equals + 2, end = rest.find('"', begin);
    if (rest.substr(1, equals - 1) == key) return unescaped(std::string(rest.substr(begin, end - begin)));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return {};
}

std::optional<JsonValue> json_of(const std::string& text) {
  try {
    return parse_json(text, RepeatedKeys::kLastWins);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A string, or JSON when the type says so and it is.
JsonValue argument_value(std::string_view type, const std::string& text) {
  if (!type.empty() && type != "string") {
    if (std::optional<JsonValue> value = json_of(text)) return *std::move(value);
  }
  return {.kind = JsonValue::Kind::kString, .text = text};
}

void set_member(JsonValue* object, const std::string& key, JsonValue value) {
  const auto found = std::find(object->keys.begin(), object->keys.end(), key);
  if (found != object->keys.end()) {
    object->items[static_cast<size_t>(found - object->keys.begin())] = std::move(value);
    return;
  }
  object->keys.push_back(key);
  object->items.push_back(std::move(value));
}

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

ReplyParser::ReplyParser(const Tokenizer& tokenizer, bool thinking)
    : tokenizer_(tokenizer),
      open_id_(required_id(tokenizer, kOpen)),
      close_id_(required_id(tokenizer, kClose)),
      sep_id_(required_id(tokenizer, kSep)),
      end_id_(required_id(tokenizer, kEndOfMessage)),
      element_(thinking ? Element::kThink : Element::kResponse) {
  message_.role = ChatRole::kAssistant;
  message_.content.emplace_back();
}

std::vector<ReplyEvent> ReplyParser::push(int32_t id) {
  const std::string_view bytes = tokenizer_.token_bytes(id);
  events_.clear();
  if (is_ended_) return {};
  if (id == end_id_) {
    end();
  } else if (id == open_id_ || id == close_id_) {
    begin_tag(id == open_id_ ? Tag::kOpening : Tag::kClosing);
  } else if (id == sep_id_) {
    end_tag();
  } else if (!tokenizer_.is_special(id)) {  // the others have no place here and say nothing
    take_text(bytes);
  }
  return std::move(events_);
}

std::vector<ReplyEvent> ReplyParser::finish() {
  events_.clear();
  if (!is_ended_) end();
  return std::move(events_);
}

void ReplyParser::end() {
  give_up_tag();
  end_character();
  enter(Element::kNone);
  is_ended_ = true;
}

// --- text ---

void ReplyParser::take_text(std::string_view bytes) {
  if (tag_ != Tag::kNone) {
    tag_text_ += bytes;
    if (tag_text_.size() > kMaxTagBytes) give_up_tag();
    return;
  }
  held_ += bytes;
  std::string text;
  take_whole_characters(&held_, &text);
  take_characters(text);
}

void ReplyParser::end_character() {
  if (held_.empty()) return;
  held_.clear();
  take_characters(kReplacementCharacter);
}

void ReplyParser::take_characters(std::string_view text) {
  while (skips_space_ && !text.empty() && is_space(text.front())) text.remove_prefix(1);
  if (text.empty()) return;
  skips_space_ = false;
  if (element_ == Element::kArgument || element_ == Element::kJson) {
    value_ += text;
    return;
  }
  const bool is_reasoning = element_ == Element::kThink;
  (is_reasoning ? message_.reasoning : message_.content[0].text) += text;
  const auto kind = is_reasoning ? ReplyEvent::Kind::kReasoning : ReplyEvent::Kind::kAnswer;
  if (!events_.empty() && events_.back().kind == kind) {
    events_.back().text += text;
  } else {
    events_.push_back({kind, std::string(text), {}});
  }
}

// --- tags ---

void ReplyParser::begin_tag(Tag tag) {
  give_up_tag();
  end_character();
  tag_ = tag;
}

void ReplyParser::end_tag() {
  if (tag_ == Tag::kNone) return;  // a separator of nothing
  const Tag tag = std::exchange(tag_, Tag::kNone);
  const std::string text = whole_characters(std::exchange(tag_text_, {}));
  if (tag == Tag::kOpening) {
    open(text);
  } else {
    close(name_of(text));
  }
}

// What was taken for a tag is text.
void ReplyParser::give_up_tag() {
  tag_ = Tag::kNone;
  take_text(std::exchange(tag_text_, {}));
}

ReplyParser::Element ReplyParser::element_of(std::string_view name) {
  if (name == "think") return Element::kThink;
  if (name == "response") return Element::kResponse;
  if (name == "tools") return Element::kTools;
  if (name == "call") return Element::kCall;
  if (name == "argument") return Element::kArgument;
  if (name == "json") return Element::kJson;
  return Element::kNone;
}

void ReplyParser::open(std::string_view tag) {
  const Element element = element_of(name_of(tag));
  const bool is_value = element == Element::kArgument || element == Element::kJson;
  if (element == Element::kNone || (is_value && !call_)) {
    ++unknown_depth_;
    return;
  }
  if (element == Element::kCall) enter(Element::kTools);  // the call before it, if it is still open, ends here
  enter(element);
  if (element == Element::kCall) {
    call_name_ = attribute(tag, "tool");
    call_ = JsonValue{.kind = JsonValue::Kind::kObject};
  } else if (element == Element::kArgument) {
    key_ = attribute(tag, "key");
    type_ = attribute(tag, "type");
  }
}

void ReplyParser::close(std::string_view name) {
  if (name == "message") return enter(Element::kNone);
  const Element element = element_of(name);
  if (element != element_ && unknown_depth_ > 0) {
    --unknown_depth_;
    return;
  }
  switch (element == Element::kTools ? element : element_) {
    case Element::kArgument:
    case Element::kJson:
      return enter(element == Element::kCall ? Element::kTools : Element::kCall);
    case Element::kCall:
      return enter(Element::kTools);
    case Element::kNone:
    case Element::kThink:
    case Element::kResponse:
    case Element::kTools:
      return enter(Element::kNone);
  }
}

// From one element to another: what is finished by that is put away.
void ReplyParser::enter(Element element) {
  leave_value();
  const bool stays_in_call = (element == Element::kCall && element_ != Element::kCall) ||
                             element == Element::kArgument || element == Element::kJson;
  if (!stays_in_call) leave_call();
  element_ = element;
  unknown_depth_ = 0;
  skips_space_ = element == Element::kNone || element == Element::kTools || element == Element::kCall;
}

void ReplyParser::leave_value() {
  if (element_ == Element::kArgument) {
    set_member(&*call_, key_, argument_value(type_, value_));
  } else if (element_ == Element::kJson) {
    std::optional<JsonValue> value = json_of(value_);
    if (!value) {
      raw_arguments_ += value_;
    } else if (value->kind == JsonValue::Kind::kObject) {
      for (size_t i = 0; i < value->keys.size(); ++i) set_member(&*call_, value->keys[i], std::move(value->items[i]));
    } else {
      set_member(&*call_, "json", *std::move(value));
    }
  }
  value_.clear();
}

void ReplyParser::leave_call() {
  if (!call_) return;
  const std::string raw = std::exchange(raw_arguments_, {});
  ChatToolCall call{{}, call_name_, raw};
  if (raw.empty() || !call_->keys.empty()) {
    // Beside arguments that could be read, those that could not are one more.
    if (!raw.empty()) set_member(&*call_, "json", {.kind = JsonValue::Kind::kString, .text = raw});
    call.arguments = write_json(*call_, kDefaultJson);
  }
  events_.push_back({ReplyEvent::Kind::kToolCall, call.name, call.arguments});
  message_.tool_calls.push_back(std::move(call));
  call_.reset();
}

}  // namespace trefoil
