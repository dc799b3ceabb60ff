#include "trefoil/conversation.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "chat/reply_parser.h"
#include "conversation/turn.h"
#include "model/sampler.h"
#include "model/session.h"
#include "model/text_model.h"

namespace trefoil {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_options(const ConversationOptions& options) {
  if (options.max_new_tokens < 1) {
    fail(ErrorCode::kInvalidArgument, "--max-new-tokens is {}, expected 1 or more", options.max_new_tokens);
  }
  if (options.engine.prefill_chunk < 1) {
    fail(ErrorCode::kInvalidArgument, "--prefill-chunk is {}, expected 1 or more", options.engine.prefill_chunk);
  }
  const Sampler checked(options.sampling);
}

ReplyPart part_of(ReplyEvent::Kind kind) {
  switch (kind) {
    case ReplyEvent::Kind::kReasoning:
      return ReplyPart::kReasoning;
    case ReplyEvent::Kind::kAnswer:
      return ReplyPart::kAnswer;
    case ReplyEvent::Kind::kToolCall:
      return ReplyPart::kToolCall;
  }
  return ReplyPart::kAnswer;
}

}  // namespace

struct Conversation::Impl {
  explicit Impl(const ConversationOptions& given)
      : options(given),
        model(given.model, given.engine),
        turns(model.tokenizer(), given.thinking, given.thinking_effort),
        store(given.snapshot_bytes),
        history(turns.beginning(given.system)),
        session(model.model()) {}

  bool is_stopped() const { return options.stop_flag != nullptr && options.stop_flag->load(std::memory_order_relaxed); }

  // To where the history, or what of it is kept, was last.
  void go_back() { session = resume(model.model(), store, history); }

  void keep_snapshot() {
    const SnapshotStore::Entry best = store.find(session.ids());
    const int64_t kept = best != nullptr ? static_cast<int64_t>(best->ids.size()) : 0;
    if (kept < session.position()) store.keep(session.snapshot());
  }

  // Runs what `ids` has and the session has not. False when it was stopped.
  bool read(std::span<const int32_t> ids, const std::atomic<bool>* stop, ProgressSink* progress);
  void write_reply(ReplyParser& parser, const ReplySink& sink, ReplyResult& result);
  void settle(std::vector<int32_t> prompt, const ChatMessage& message);
  ReplyResult say(std::string_view text, const ReplySink& sink, ProgressSink* progress);

  ConversationOptions options;
  TextModel model;
  TurnWriter turns;
  SnapshotStore store;
  std::vector<int32_t> history;  // up to the end of a message
  Session session;               // its ids are a prefix of the history between turns
};

bool Conversation::Impl::read(std::span<const int32_t> ids, const std::atomic<bool>* stop, ProgressSink* progress) {
  const std::span<const int32_t> rest = ids.subspan(static_cast<size_t>(session.position()));
  const int64_t done = session.extend(rest, {options.engine.prefill_chunk, progress, stop});
  if (progress != nullptr) progress->make_way();
  return done == static_cast<int64_t>(rest.size());
}

// Generates until the end of the message. Every token whose text was shown is run, so that the session has it.
void Conversation::Impl::write_reply(ReplyParser& parser, const ReplySink& sink, ReplyResult& result) {
  bool goes_on = true;
  const auto show = [&](const std::vector<ReplyEvent>& events) {
    for (const ReplyEvent& event : events) {
      const bool is_call = event.kind == ReplyEvent::Kind::kToolCall;
      goes_on = sink(part_of(event.kind), is_call ? event.text + " " + event.arguments : event.text) && goes_on;
    }
  };
  Sampler sampler(options.sampling);
  sampler.seek(session.position());
  result.finish = FinishReason::kLength;
  while (result.generated_tokens < options.max_new_tokens) {
    const int32_t id = sampler.sample(session.logits());
    ++result.generated_tokens;
    if (!model.is_end(id)) show(parser.push(id));
    if (parser.is_ended() || model.is_end(id)) {
      result.finish = FinishReason::kEos;
      break;
    }
    if (session.room() == 0) break;
    session.extend({&id, 1});
    if (!goes_on || is_stopped()) {
      result.finish = FinishReason::kCancelled;
      break;
    }
  }
  show(parser.finish());
}

// What the history has of the reply that follows `prompt`, and a session that is a prefix of it.
void Conversation::Impl::settle(std::vector<int32_t> prompt, const ChatMessage& message) {
  const std::vector<int32_t> whole = turns.reply(message);
  const std::span<const int32_t> begun = std::span(session.ids()).subspan(prompt.size());
  if (const auto rest = remainder(model.tokenizer(), begun, whole)) {
    history = session.ids();
    history.insert(history.end(), rest->begin(), rest->end());
    return;
  }
  history = std::move(prompt);
  history.insert(history.end(), whole.begin(), whole.end());
  go_back();
}

ReplyResult Conversation::Impl::say(std::string_view text, const ReplySink& sink, ProgressSink* progress) {
  const std::vector<int32_t> question = turns.question(text);
  std::vector<int32_t> prompt = history;
  prompt.insert(prompt.end(), question.begin(), question.end());
  const int64_t context = model.model().config().max_position_embeddings;
  if (static_cast<int64_t>(prompt.size()) >= context) {
    fail(ErrorCode::kInvalidArgument, "the conversation has {} tokens and the message {}, the model's context is {}",
         history.size(), question.size(), context);
  }
  ReplyResult result;
  Clock::time_point start = Clock::now();
  keep_snapshot();
  result.read_tokens = static_cast<int64_t>(prompt.size()) - session.position();
  if (!read(prompt, options.stop_flag, progress) || is_stopped()) {
    go_back();
    result.is_withdrawn = true;
    result.finish = FinishReason::kCancelled;
    return result;
  }
  result.read_seconds = seconds_since(start);
  keep_snapshot();

  start = Clock::now();
  ReplyParser parser(model.tokenizer(), options.thinking);
  write_reply(parser, sink, result);
  result.reply_seconds = seconds_since(start);
  result.reasoning = parser.message().reasoning;
  result.answer = parser.message().content[0].text;
  settle(std::move(prompt), parser.message());
  return result;
}

Conversation::Conversation(const ConversationOptions& options) {
  check_options(options);
  impl_ = std::make_unique<Impl>(options);
}

Conversation::~Conversation() = default;

ReplyResult Conversation::say(std::string_view text, const ReplySink& sink, ProgressSink* progress) {
  try {
    return impl_->say(text, sink, progress);
  } catch (...) {
    impl_->go_back();
    throw;
  }
}

void Conversation::reset() {
  impl_->history = impl_->turns.beginning(impl_->options.system);
  impl_->go_back();
}

void Conversation::save(const std::filesystem::path& file, ProgressSink* progress) {
  check_snapshot_place(file);
  try {
    impl_->read(impl_->history, nullptr, progress);
  } catch (...) {
    impl_->go_back();
    throw;
  }
  save_snapshot(impl_->session.snapshot(), impl_->model.snapshot_shape(), file);
}

void Conversation::load(const std::filesystem::path& file) {
  SequenceSnapshot snapshot = load_snapshot(impl_->model.snapshot_shape(), file);
  if (!impl_->turns.ends_with_message(snapshot.ids)) {
    fail(ErrorCode::kInvalidArgument, "{}: no conversation: its last token, {}, does not end a message", file.string(),
         snapshot.ids.back());
  }
  if (impl_->turns.has_other_kind(snapshot.ids)) {
    fail(ErrorCode::kInvalidArgument, "{}: its replies are {} reasoning, here they are {}", file.string(),
         impl_->options.thinking ? "without" : "with", impl_->options.thinking ? "with" : "without");
  }
  impl_->session = Session(impl_->model.model(), snapshot);
  impl_->history = snapshot.ids;
  impl_->store.keep(std::move(snapshot));
}

const std::vector<int32_t>& Conversation::ids() const {
  return impl_->history;
}

ConversationFacts Conversation::facts() const {
  const int64_t context = impl_->model.model().config().max_position_embeddings;
  const int64_t tokens = static_cast<int64_t>(impl_->history.size());
  return {tokens, std::max<int64_t>(0, context - tokens), impl_->session.bytes(), impl_->store.size(),
          impl_->store.bytes()};
}

}  // namespace trefoil
