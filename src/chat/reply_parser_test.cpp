#include "chat/reply_parser.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/splitmix64.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using Kind = ReplyEvent::Kind;

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::load(testing::tiny_k3_dir());
  return tokenizer;
}

// "{think}a{/think}|": { and {/ open and close a tag, } ends it, | is the end of the message.
std::string markup(std::string_view brief) {
  std::string out;
  for (size_t i = 0; i < brief.size(); ++i) {
    const bool closes = brief.substr(i).starts_with("{/");
    if (brief[i] == '{') {
      out += closes ? "<|close|>" : "<|open|>";
      i += closes;
    } else if (brief[i] == '}') {
      out += "<|sep|>";
    } else if (brief[i] == '|') {
      out += "<|end_of_msg|>";
    } else {
      out += brief[i];
    }
  }
  return out;
}

std::vector<int32_t> ids_of(std::string_view brief) {
  return tiny().encode(markup(brief), EncodeMode::kMarkup);
}

// Neighbours of one kind joined: how text is cut into events is nobody's business.
std::vector<ReplyEvent> parsed(const std::vector<int32_t>& ids, bool thinking = true, ChatMessage* message = nullptr) {
  ReplyParser parser(tiny(), thinking);
  std::vector<ReplyEvent> all;
  const auto take = [&](const std::vector<ReplyEvent>& events) {
    for (const ReplyEvent& event : events) {
      if (!all.empty() && all.back().kind == event.kind && event.kind != Kind::kToolCall) {
        all.back().text += event.text;
      } else {
        all.push_back(event);
      }
    }
  };
  for (const int32_t id : ids) take(parser.push(id));
  take(parser.finish());
  EXPECT_TRUE(parser.is_ended());
  if (message != nullptr) *message = parser.message();
  return all;
}

std::vector<ReplyEvent> parsed(std::string_view brief) {
  return parsed(ids_of(brief));
}

std::vector<int32_t> rendered(const std::vector<ChatMessage>& messages, bool add_generation_prompt = false) {
  ChatRequest request;
  request.messages = messages;
  request.add_generation_prompt = add_generation_prompt;
  return encode_chat(tiny(), render_chat(request));
}

ReplyEvent reasoning(const std::string& text) {
  return {Kind::kReasoning, text, {}};
}
ReplyEvent answer(const std::string& text) {
  return {Kind::kAnswer, text, {}};
}
ReplyEvent call(const std::string& name, const std::string& arguments) {
  return {Kind::kToolCall, name, arguments};
}

constexpr std::string_view kCalls =
    "Look.{/think}{response}Wait.{/response}{tools}{call tool=\"weather\" index=\"1\"}"
    "{argument key=\"city\" type=\"string\"}Oslo{/argument}{argument key=\"days\" type=\"number\"}2{/argument}{/call}"
    "{call tool=\"a&amp;&quot;b\" index=\"2\"}{json type=\"object\"}{\"x\": [1, {}]}{/json}{/call}{/tools}{/message}|";

TEST(ReplyParser, TakesReasoningAndAnswerApart) {
  ChatMessage message;
  EXPECT_THAT(parsed(ids_of("One, two.{/think}{response}Three.{/response}{/message}|"), true, &message),
              ElementsAre(reasoning("One, two."), answer("Three.")));
  EXPECT_EQ(message.role, ChatRole::kAssistant);
  EXPECT_EQ(message.reasoning, "One, two.");
  EXPECT_EQ(message.content[0].text, "Three.");
  EXPECT_THAT(parsed(ids_of("Three.{/response}{/message}|"), false), ElementsAre(answer("Three.")));
}

TEST(ReplyParser, ReadsCallsAndTheirArguments) {
  const std::string brief(kCalls);
  ChatMessage message;
  // The braces of JSON are text: encoded apart from the markup around them.
  std::vector<int32_t> ids = ids_of(brief.substr(0, brief.find("{\"x\"")));
  const std::vector<int32_t> json = tiny().encode("{\"x\": [1, {}]}"),
                             rest = ids_of(brief.substr(brief.find("{/json}")));
  ids.insert(ids.end(), json.begin(), json.end());
  ids.insert(ids.end(), rest.begin(), rest.end());
  EXPECT_THAT(parsed(ids, true, &message),
              ElementsAre(reasoning("Look."), answer("Wait."), call("weather", R"({"city": "Oslo", "days": 2})"),
                          call("a&\"b", R"({"x": [1, {}]})")));
  ASSERT_EQ(message.tool_calls.size(), 2u);
  EXPECT_EQ(message.tool_calls[1].name, "a&\"b");
}

// Every text of a reply may come in any tokens: the bytes decide.
TEST(ReplyParser, HowTextIsCutIntoTokensDoesNotMatter) {
  const std::string text = "Grüße, 世界 🌍.";
  const std::vector<int32_t> opening = ids_of("{/think}{response}"), closing = ids_of("{/response}{/message}|");
  std::vector<int32_t> byte_ids(256, -1);
  for (int32_t id = 0; id < tiny().num_base_tokens(); ++id) {
    if (tiny().token_bytes(id).size() == 1) byte_ids[static_cast<uint8_t>(tiny().token_bytes(id)[0])] = id;
  }
  const auto bytewise = [&](std::string_view bytes) {
    std::vector<int32_t> ids;
    for (const char c : bytes) ids.push_back(byte_ids[static_cast<uint8_t>(c)]);
    return ids;
  };
  const auto joined = [](std::initializer_list<std::vector<int32_t>> parts) {
    std::vector<int32_t> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const auto expected = ElementsAre(reasoning(text), answer(text));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::vector<int32_t> cut_ids = joined({bytewise(text.substr(0, cut)), bytewise(text.substr(cut))});
    EXPECT_THAT(parsed(joined({cut_ids, opening, tiny().encode(text), closing})), expected) << cut;
    // A character that the element's end cuts off is one replacement, in its own element.
    const auto events = parsed(joined({bytewise(text.substr(0, cut)), opening, bytewise("x"), closing}));
    const std::string whole = tiny().decode(bytewise(text.substr(0, cut)));
    if (cut > 0) {
      EXPECT_THAT(events, ElementsAre(reasoning(whole), answer("x"))) << cut;
    }
  }
  // Tags and attributes too.
  std::vector<int32_t> ids, bytes;
  for (const int32_t id : ids_of("a{/think}{tools}{call tool=\"näme\" index=\"1\"}{/call}{/tools}{/message}|")) {
    ids.push_back(id);
    const std::vector<int32_t> one =
        tiny().is_special(id) ? std::vector<int32_t>{id} : bytewise(tiny().token_bytes(id));
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  ASSERT_NE(ids, bytes);
  EXPECT_EQ(parsed(ids), parsed(bytes));
}

TEST(ReplyParser, AReplyThatEndsAnywhereLosesNothing) {
  const std::vector<int32_t> ids = ids_of("One.{/think}{response}Two.{/response}{/message}|");
  for (size_t size = 0; size <= ids.size(); ++size) {
    std::string expected, tag;
    bool is_in_tag = false;
    for (size_t i = 0; i < size; ++i) {
      const bool is_special = tiny().is_special(ids[i]);
      if (!is_special) (is_in_tag ? tag : expected) += tiny().token_bytes(ids[i]);
      if (is_special) is_in_tag = tiny().token_bytes(ids[i]) != "<|sep|>";
      if (is_special) tag.clear();
    }
    std::string text;
    for (const ReplyEvent& event : parsed({ids.begin(), ids.begin() + static_cast<int64_t>(size)})) text += event.text;
    EXPECT_EQ(text, expected + tag) << size;  // a tag that is cut off shows as the text that it is
  }
  EXPECT_THAT(parsed(std::vector<int32_t>{}), ElementsAre());
}

TEST(ReplyParser, LookAlikesAreText) {
  const std::vector<int32_t> ids = tiny().encode("<|close|>think<|sep|><|end_of_msg|>");
  EXPECT_THAT(parsed(ids), ElementsAre(reasoning("<|close|>think<|sep|><|end_of_msg|>")));
}

TEST(ReplyParser, NothingBehindTheEndCounts) {
  EXPECT_THAT(parsed("a|b{/think}{response}c"), ElementsAre(reasoning("a")));
}

TEST(ReplyParser, MalformedRepliesKeepTheirText) {
  // Opened without closing what was open; closed by another name; text between elements.
  EXPECT_THAT(parsed("a{response}b|"), ElementsAre(reasoning("a"), answer("b")));
  EXPECT_THAT(parsed("a{/response}{response}b{/think} \n c|"), ElementsAre(reasoning("a"), answer("bc")));
  EXPECT_THAT(parsed("a{/think}\n\n{response}b{/response}\n{/message}|"), ElementsAre(reasoning("a"), answer("b")));
  // Separators of nothing, tags without an end, unknown elements, other special tokens.
  EXPECT_THAT(parsed("a}b{c{/d|"), ElementsAre(reasoning("abcd")));
  EXPECT_THAT(parsed("a{quote kind=\"x\"}b{/quote}c{/think}d|"), ElementsAre(reasoning("abc"), answer("d")));
  EXPECT_THAT(parsed("a[BOS]b[EOS]|"), ElementsAre(reasoning("ab")));
  // A call without its closing tags, an index, a tool, or JSON; values outside of a call.
  EXPECT_THAT(parsed("{/think}{tools}{call tool=\"f\"}{argument key=\"k\"}v{call}{argument}w|"),
              ElementsAre(call("f", R"({"k": "v"})"), call("", R"({"": "w"})")));
  EXPECT_THAT(parsed("{/think}{tools}{call tool=\"f\"}{argument key=\"k\" type=\"number\"}two{/call}{/tools}x|"),
              ElementsAre(call("f", R"({"k": "two"})"), answer("x")));
  EXPECT_THAT(parsed("{/think}{call tool=\"f\"}{json}no json{/json}{/call}|"), ElementsAre(call("f", "no json")));
  EXPECT_THAT(parsed("{/think}{call tool=\"f\"}{json}[1]{/json}{/call}|"), ElementsAre(call("f", R"({"json": [1]})")));
  EXPECT_THAT(parsed("{/think}{argument key=\"k\"}v{/argument}|"), ElementsAre(answer("v")));
  EXPECT_THAT(parsed("{/think}{call tool=\"f"), ElementsAre(answer("call tool=\"f")));
  EXPECT_THAT(parsed("{/think}{call tool=\"f}{/call}|"), ElementsAre(call("f", "{}")));
}

TEST(ReplyParser, ATagWithoutEndBecomesTextAtLast) {
  const std::string longer(size_t{1} << 17, 'x');
  const std::vector<ReplyEvent> events = parsed("{" + longer + "}|");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, longer);
}

TEST(ReplyParser, AnyTokensAtAllEnd) {
  SplitMix64 random(7);
  const char* const fragments[] = {"{",
                                   "{/",
                                   "}",
                                   "{/think}",
                                   "{response}",
                                   "{/response}",
                                   "{tools}",
                                   "{/tools}",
                                   "{call tool=\"f\" index=\"1\"}",
                                   "{/call}",
                                   "{json type=\"object\"}",
                                   "{/json}",
                                   "{argument key=\"k\" type=\"number\"}",
                                   "{argument}",
                                   "{/argument}",
                                   "{/message}",
                                   "think",
                                   "json",
                                   "call",
                                   " tool=\"",
                                   "7",
                                   "[1",
                                   "\"",
                                   "null",
                                   " ",
                                   "|"};
  for (int run = 0; run < 3000; ++run) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 40; ++i) {
      // The end of the message seldom, or little would be seen.
      const size_t fragment = random.next() % std::size(fragments);
      const bool is_end = fragment + 1 == std::size(fragments);
      if (random.next() % 8 == 0 || (is_end && i < 30)) {
        ids.push_back(static_cast<int32_t>(random.next() % 4096));
      } else {
        const std::vector<int32_t> more = ids_of(fragments[fragment]);
        ids.insert(ids.end(), more.begin(), more.end());
      }
    }
    ChatMessage message;
    parsed(ids, run % 2 == 0, &message);
    rendered({message});  // history takes whatever came
  }
}

TEST(ReplyParser, WhatTheFormatWritesComesBack) {
  ChatMessage message;
  message.role = ChatRole::kAssistant;
  message.reasoning = "a\nb";
  message.content = {{"Grüße {}", false}};
  message.tool_calls = {{{}, "f & \"g\"", R"({"s": "x", "n": 1.5, "o": {"a": [null, true]}, "e": ""})"},
                        {{}, "h", "{}"}};
  const std::vector<int32_t> prompt = rendered({}, true);
  std::vector<int32_t> ids = rendered({message});
  ids.erase(ids.begin(), ids.begin() + static_cast<int64_t>(prompt.size()));
  ChatMessage again;
  parsed(ids, true, &again);
  EXPECT_EQ(again.reasoning, message.reasoning);
  EXPECT_EQ(again.content[0].text, message.content[0].text);
  ASSERT_EQ(again.tool_calls.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again.tool_calls[i].name, message.tool_calls[i].name);
    EXPECT_EQ(again.tool_calls[i].arguments, message.tool_calls[i].arguments);
  }
}

TEST(ReplyParser, ATokenizerWithoutTheMarkersIsRefused) {
  const Tokenizer bare = Tokenizer::parse(testing::read_text(testing::tiny_k3_dir() / "tiktoken.model"), "{}");
  EXPECT_THROW(ReplyParser(bare, true), Error);
}

}  // namespace
}  // namespace trefoil
