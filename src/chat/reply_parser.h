// What the model writes in answer to a chat prompt, taken apart while it comes: reasoning, answer, tool calls, end.
// docs/chat.md, "Replies". Driven by the ids of the special tokens alone, so that text which merely looks like markup
// stays text; one state machine for streams and whole replies.
//
// Models write malformed replies. None is refused and no text is lost: an unknown element's text goes to where the text
// around it goes, a closing tag of the wrong name closes what is open, and what stands between elements is answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/json_value.h"
#include "trefoil/chat.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

struct ReplyEvent {
  enum class Kind { kReasoning, kAnswer, kToolCall };
  Kind kind = Kind::kAnswer;
  std::string text;       // whole characters; kToolCall: the tool's name
  std::string arguments;  // kToolCall, when the call is complete: a JSON object, or what the model wrote in its place
  bool operator==(const ReplyEvent&) const = default;
};

class ReplyParser {
 public:
  // `thinking`: the prompt ended with the opening of think, else of response. Error(kUnsupported) when the tokenizer
  // lacks one of the four tokens of the markup.
  ReplyParser(const Tokenizer& tokenizer, bool thinking);

  // Takes the next token. Nothing behind the end of the message counts. Error(kInvalidArgument) for an id that is none
  // of the tokenizer's.
  std::vector<ReplyEvent> push(int32_t id);
  // No more tokens come: what was held back of a character, a tag or a call.
  std::vector<ReplyEvent> finish();

  bool is_ended() const { return is_ended_; }  // the end of the message was met
  // The whole reply so far as a message of the assistant; complete after finish() or the end.
  const ChatMessage& message() const { return message_; }

 private:
  enum class Element { kNone, kThink, kResponse, kTools, kCall, kArgument, kJson };
  enum class Tag { kNone, kOpening, kClosing };

  static Element element_of(std::string_view name);
  void take_text(std::string_view bytes);
  void take_characters(std::string_view text);
  void end_character();
  void begin_tag(Tag tag);
  void end_tag();
  void give_up_tag();
  void open(std::string_view tag);
  void close(std::string_view name);
  void enter(Element element);
  void leave_value();
  void leave_call();
  void end();

  Tokenizer tokenizer_;
  int32_t open_id_, close_id_, sep_id_, end_id_;
  ChatMessage message_;
  std::vector<ReplyEvent> events_;  // of the present push
  bool is_ended_ = false;

  Element element_ = Element::kNone;
  int unknown_depth_ = 0;     // elements inside it that nothing here knows
  bool skips_space_ = false;  // between elements, up to the first character that is none
  Tag tag_ = Tag::kNone;
  std::string tag_text_;  // bytes since the opening or closing token
  std::string held_;      // the beginning of a character

  std::optional<JsonValue> call_;  // the open call's arguments, an object
  std::string call_name_, raw_arguments_;
  std::string key_, type_, value_;  // of the open argument; value_ also of json
};

}  // namespace trefoil
