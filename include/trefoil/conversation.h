// A conversation with the model in Kimi-K3's chat format, turn by turn, over a state that is kept. Part of the public
// interface. docs/chat.md, "Conversations".
//
// The state only ever grows by what is new. What the history holds of a reply is what the format renders of it
// (reasoning stays in it); where that reads otherwise than what the model wrote, as after a malformed reply, the state
// is worked out again from the snapshot before the reply.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trefoil/generate.h"
#include "trefoil/progress.h"

namespace trefoil {

struct ConversationOptions {
  std::filesystem::path model;          // folder of the checkpoint, with its tokenizer files
  std::string system;                   // the system's message; empty: none
  bool thinking = true;                 // replies begin with reasoning
  std::string thinking_effort = "max";  // low, high or max; empty: not said. Only with thinking
  SamplingOptions sampling = {.temperature = 1, .top_p = 0.95};
  int64_t max_new_tokens = 32768;                // of one reply
  EngineOptions engine;                          // how the model is held and run
  uint64_t snapshot_bytes = uint64_t{4} << 30;   // memory for snapshots; less costs time, never changes a reply
  const std::atomic<bool>* stop_flag = nullptr;  // set it to end the reply, or the reading of a message, soon
};

enum class ReplyPart { kReasoning, kAnswer, kToolCall };

// Gets whole characters. A tool call comes complete, as `NAME ARGUMENTS`. Returns false to end the reply.
using ReplySink = std::function<bool(ReplyPart part, std::string_view text)>;

struct ReplyResult {
  bool is_withdrawn = false;  // stopped before the reply began: the message is not part of the conversation
  std::string reasoning;
  std::string answer;
  FinishReason finish = FinishReason::kLength;
  int64_t read_tokens = 0;       // run before the reply: the message and what was left of the turn before
  int64_t generated_tokens = 0;  // the end of the message included
  double read_seconds = 0;
  double reply_seconds = 0;
};

struct ConversationFacts {
  int64_t tokens = 0;  // of the whole conversation
  int64_t room = 0;    // tokens that the model's context has left
  uint64_t state_bytes = 0;
  uint64_t snapshots = 0;
  uint64_t snapshot_bytes = 0;
};

class Conversation {
 public:
  // Loads the model. Errors: kInvalidArgument for options out of range; those of opening the checkpoint and its
  // tokenizer; kUnsupported when the tokenizer lacks the tokens of the chat format.
  explicit Conversation(const ConversationOptions& options);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // One turn: a message of the user, in which nothing is special, and the model's reply. After an Error (text that is
  // not UTF-8, no room in the context, a read that failed, a sink that threw) the conversation is as it was before.
  ReplyResult say(std::string_view text, const ReplySink& sink, ProgressSink* progress = nullptr);

  // Back to the beginning, with the options' system message.
  void reset();
  // The whole conversation as the state of a sequence (docs/formats.md, "Sequence state").
  void save(const std::filesystem::path& file, ProgressSink* progress = nullptr);
  // Goes on where the file's conversation stands; its own system message counts. Error(kInvalidArgument), and nothing
  // is changed, for the state of another model, text that is no conversation, and replies with reasoning where these
  // are without or the other way round.
  void load(const std::filesystem::path& file);

  // The ids of the conversation, up to the end of the last message.
  const std::vector<int32_t>& ids() const;
  ConversationFacts facts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trefoil
