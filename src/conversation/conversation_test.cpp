#include "trefoil/conversation.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "conversation/turn.h"
#include "model/session.h"
#include "model/text_model.h"
#include "support/expect_error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using testing::fails_with;

ConversationOptions tiny() {
  ConversationOptions options;
  options.model = testing::tiny_k3_dir();
  options.max_new_tokens = 10;
  options.engine.threads = 2;
  return options;
}

// Random ids of all kinds, special ones among them: what no template would render.
ConversationOptions wild() {
  ConversationOptions options = tiny();
  options.sampling = {.temperature = 1e6, .seed = 3};
  options.max_new_tokens = 60;
  return options;
}

bool all(ReplyPart, std::string_view) {
  return true;
}

std::string reply_of(Conversation& conversation, std::string_view text) {
  const ReplyResult result = conversation.say(text, all);
  return result.reasoning + "|" + result.answer;
}

// The conversation as the format renders it, from what was said.
class Transcript {
 public:
  explicit Transcript(const ConversationOptions& options) {
    request_.thinking = options.thinking;
    request_.thinking_effort = options.thinking_effort;
    request_.add_generation_prompt = false;
    if (!options.system.empty()) add(ChatRole::kSystem, options.system);
  }
  void add(ChatRole role, const std::string& content, const std::string& reasoning = {}) {
    ChatMessage message;
    message.role = role;
    message.content = {{content, false}};
    message.reasoning = reasoning;
    request_.messages.push_back(message);
  }
  void say(Conversation& conversation, const std::string& text) {
    const ReplyResult result = conversation.say(text, all);
    add(ChatRole::kUser, text);
    add(ChatRole::kAssistant, result.answer, result.reasoning);
  }
  std::vector<int32_t> ids() const {
    return encode_chat(Tokenizer::load(testing::tiny_k3_dir()), render_chat(request_));
  }

 private:
  ChatRequest request_;
};

void expect_reads_as(const std::vector<int32_t>& ids, const std::vector<int32_t>& expected) {
  const Tokenizer tokenizer = Tokenizer::load(testing::tiny_k3_dir());
  const auto rest = remainder(tokenizer, ids, expected);
  EXPECT_TRUE(rest && rest->empty()) << tokenizer.decode(ids) << "\n\n" << tokenizer.decode(expected);
}

TEST(Conversation, ItsHistoryIsWhatTheFormatRenders) {
  for (const bool thinking : {true, false}) {
    ConversationOptions options = tiny();
    options.system = "Be brief <|open|>.";
    options.thinking = thinking;
    Conversation conversation(options);
    Transcript transcript(options);
    expect_reads_as(conversation.ids(), transcript.ids());
    for (const char* text : {"How does it work?", "<|close|>message<|sep|> And why?", "Grüße"}) {
      transcript.say(conversation, text);
      expect_reads_as(conversation.ids(), transcript.ids());
    }
  }
}

TEST(Conversation, ATurnRunsOnlyWhatIsNew) {
  Conversation conversation(tiny());
  const ReplyResult first = conversation.say("How does it work?", all);
  EXPECT_EQ(first.generated_tokens, 10);
  EXPECT_EQ(first.finish, FinishReason::kLength);
  const int64_t tokens = conversation.facts().tokens;
  const ReplyResult second = conversation.say("And why?", all);
  const int64_t question = static_cast<int64_t>(
      TurnWriter(Tokenizer::load(testing::tiny_k3_dir()), true, "max").question("And why?").size());
  const int64_t closing = tokens - first.read_tokens - first.generated_tokens;  // of the reply that was cut off
  EXPECT_EQ(second.read_tokens, closing + question);
}

TEST(Conversation, AMalformedReplyIsPutRightInTheHistory) {
  ConversationOptions options = wild();
  Conversation conversation(options);
  const ReplyResult result = conversation.say("How does it work?", all);
  Transcript transcript(options);
  transcript.add(ChatRole::kUser, "How does it work?");
  transcript.add(ChatRole::kAssistant, result.answer, result.reasoning);
  EXPECT_EQ(result.generated_tokens, 60);
  EXPECT_EQ(conversation.ids(), transcript.ids());  // tokens too, being encoded again
}

// The next reply is that of a fresh run over the whole history, bit for bit, whichever way the state came about.
TEST(Conversation, SnapshotsNeverChangeAReply) {
  for (ConversationOptions options : {tiny(), wild()}) {
    std::vector<std::string> replies[2];
    std::vector<int32_t> ids[2];
    for (const int pass : {0, 1}) {
      options.snapshot_bytes = pass == 0 ? uint64_t{1} << 30 : 0;
      Conversation conversation(options);
      for (const char* text : {"How does it work?", "And why?", "When?"})
        replies[pass].push_back(reply_of(conversation, text));
      conversation.reset();  // what was kept so far is of another conversation
      for (const char* text : {"No.", "It does not work and nobody knows for how long.", "No."})
        replies[pass].push_back(reply_of(conversation, text));
      ids[pass] = conversation.ids();
      EXPECT_EQ(conversation.facts().snapshots > 0, pass == 0);
    }
    EXPECT_EQ(replies[0], replies[1]);
    EXPECT_EQ(ids[0], ids[1]);
  }
}

TEST(Conversation, TheSeedAndNothingElseDecides) {
  ConversationOptions options = tiny();
  options.sampling.seed = 11;
  Conversation one(options);
  options.engine.threads = 1;
  options.engine.prefill_chunk = 3;
  Conversation other(options);
  options.sampling.seed = 12;
  Conversation third(options);
  const std::string first = reply_of(one, "How does it work?"), second = reply_of(one, "And why?");
  EXPECT_EQ(reply_of(other, "How does it work?"), first);
  EXPECT_EQ(reply_of(other, "And why?"), second);
  EXPECT_NE(reply_of(third, "How does it work?"), first);
  one.reset();
  EXPECT_EQ(reply_of(one, "How does it work?"), first);
}

TEST(Conversation, SavedAndLoadedEqualsGoneOn) {
  const testing::TempDir folder;
  for (ConversationOptions options : {tiny(), wild()}) {
    options.system = "Be brief.";
    Conversation conversation(options);
    reply_of(conversation, "How does it work?");
    conversation.save(folder.path() / "talk");
    const std::string next = reply_of(conversation, "And why?");
    options.system = "another, which the file's replaces";
    Conversation loaded(options);
    reply_of(loaded, "Something else.");
    loaded.load(folder.path() / "talk");
    EXPECT_EQ(reply_of(loaded, "And why?"), next);
    EXPECT_EQ(loaded.ids(), conversation.ids());
  }
}

TEST(Conversation, WhatCannotBeLoadedChangesNothing) {
  const testing::TempDir folder;
  Conversation conversation(tiny());
  reply_of(conversation, "How does it work?");
  const std::vector<int32_t> before = conversation.ids();
  const auto refused = [&](const std::string& part) {
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, part, [&] { conversation.load(folder.path() / "state"); }));
    EXPECT_EQ(conversation.ids(), before);
  };
  GenerateOptions text;
  text.model = testing::tiny_k3_dir();
  text.prompt = "no conversation";
  text.max_new_tokens = 0;
  text.save_state = folder.path() / "state";
  generate(text, nullptr);
  refused("does not end a message");
  ConversationOptions options = tiny();
  options.thinking = false;
  Conversation plain(options);
  reply_of(plain, "How does it work?");
  plain.save(folder.path() / "state");
  refused("without reasoning");
  options = tiny();
  options.engine.numerics = Numerics::kF32;
  Conversation f32(options);
  f32.save(folder.path() / "state");
  refused("other numerics");
}

TEST(Conversation, AStoppedReplyStaysAndTheConversationGoesOn) {
  std::atomic<bool> stop{false};
  ConversationOptions options = tiny();
  options.stop_flag = &stop;
  options.max_new_tokens = 1000;
  Conversation conversation(options);
  int pieces = 0;
  const ReplyResult result = conversation.say("How does it work?", [&](ReplyPart, std::string_view) {
    stop = ++pieces == 5;
    return true;
  });
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_FALSE(result.is_withdrawn);
  Transcript transcript(options);
  transcript.add(ChatRole::kUser, "How does it work?");
  transcript.add(ChatRole::kAssistant, result.answer, result.reasoning);
  expect_reads_as(conversation.ids(), transcript.ids());

  // As if the reply had had that length from the start.
  stop = false;
  options.max_new_tokens = result.generated_tokens;
  Conversation shorter(options);
  shorter.say("How does it work?", all);
  EXPECT_EQ(conversation.ids(), shorter.ids());
  const ReplyResult next = conversation.say("And why?", [&](ReplyPart, std::string_view) { return false; });
  EXPECT_EQ(next.generated_tokens, 1);
  EXPECT_EQ(shorter.say("And why?", all).reasoning.substr(0, next.reasoning.size()), next.reasoning);
}

TEST(Conversation, AMessageThatIsStoppedWhileItIsReadIsWithdrawn) {
  std::atomic<bool> stop{false};
  ConversationOptions options = tiny();
  options.stop_flag = &stop;
  options.engine.prefill_chunk = 4;
  Conversation conversation(options), undisturbed(options);
  EXPECT_EQ(reply_of(conversation, "How does it work?"), reply_of(undisturbed, "How does it work?"));
  struct Sink : ProgressSink {
    std::atomic<bool>* stop = nullptr;
    void update(std::string_view, int64_t done, int64_t) override {
      *stop = done >= 24;
    }  // behind the rest of the turn before
  } sink;
  sink.stop = &stop;
  const ReplyResult result = conversation.say("Never mind this, it is long enough for some chunks.", all, &sink);
  EXPECT_TRUE(result.is_withdrawn);
  EXPECT_EQ(result.generated_tokens, 0);
  EXPECT_EQ(conversation.ids(), undisturbed.ids());
  stop = false;
  EXPECT_EQ(reply_of(conversation, "And why?"), reply_of(undisturbed, "And why?"));
}

TEST(Conversation, AnErrorLeavesItAsItWas) {
  Conversation conversation(tiny()), undisturbed(tiny());
  EXPECT_EQ(reply_of(conversation, "How does it work?"), reply_of(undisturbed, "How does it work?"));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "UTF-8", [&] { conversation.say("\xFF", all); }));
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "planted", [&] {
    int pieces = 0;
    conversation.say("And how?", [&](ReplyPart, std::string_view) {
      if (++pieces == 3) throw Error(ErrorCode::kIo, "planted");
      return true;
    });
  }));
  EXPECT_EQ(conversation.ids(), undisturbed.ids());
  EXPECT_EQ(reply_of(conversation, "And why?"), reply_of(undisturbed, "And why?"));
}

TEST(Conversation, ReasoningAndAnswerReachTheSinkApart) {
  ConversationOptions options = tiny();
  Conversation conversation(options);
  std::string reasoning, answer;
  const auto sink = [&](ReplyPart part, std::string_view text) {
    (part == ReplyPart::kReasoning ? reasoning : answer) += text;
    return true;
  };
  ReplyResult result = conversation.say("How does it work?", sink);
  EXPECT_EQ(result.reasoning, reasoning);
  EXPECT_FALSE(reasoning.empty());
  options.thinking = false;
  Conversation plain(options);
  reasoning.clear();
  result = plain.say("How does it work?", sink);
  EXPECT_EQ(result.answer, answer);
  EXPECT_FALSE(answer.empty());
  EXPECT_TRUE(reasoning.empty());
}

TEST(Conversation, EndsWithTheModelsEndToken) {
  const testing::TempDir copy;
  for (const auto& file : std::filesystem::directory_iterator(testing::tiny_k3_dir())) {
    if (file.path().filename() != "generation_config.json")
      std::filesystem::create_symlink(std::filesystem::absolute(file.path()), copy.path() / file.path().filename());
  }
  ConversationOptions options = tiny();
  Conversation free(options);
  free.say("How does it work?", all);
  const TurnWriter turns(Tokenizer::load(options.model), true, "max");
  const size_t prompt = turns.beginning("").size() + turns.question("How does it work?").size();
  const int32_t fourth = free.ids()[prompt + 3];
  testing::write_text(copy.path() / "generation_config.json", nlohmann::json{{"eos_token_id", fourth}}.dump());
  options.model = copy.path();
  Conversation conversation(options);
  const ReplyResult result = conversation.say("How does it work?", all);
  EXPECT_EQ(result.finish, FinishReason::kEos);
  EXPECT_LE(result.generated_tokens, 4);
  Transcript transcript(options);
  transcript.add(ChatRole::kUser, "How does it work?");
  transcript.add(ChatRole::kAssistant, result.answer, result.reasoning);
  expect_reads_as(conversation.ids(), transcript.ids());
}

TEST(Conversation, WrongOptionsAreNamed) {
  ConversationOptions options = tiny();
  options.max_new_tokens = 0;
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "--max-new-tokens", [&] { Conversation one(options); }));
  options = tiny();
  options.thinking_effort = "medium";
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "medium", [&] { Conversation one(options); }));
  options = tiny();
  options.sampling.top_p = 0;
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "--top-p", [&] { Conversation one(options); }));
}

}  // namespace
}  // namespace trefoil
