#include "trefoil/generate.h"

#include "base/error.h"
#include "base/stopwatch.h"
#include "model/sampler.h"
#include "model/session.h"
#include "model/stop_strings.h"
#include "model/text_model.h"
#include "trefoil/tokenizer.h"

namespace trefoil {
namespace {

void check_options(const GenerateOptions& options) {
  if (options.max_new_tokens < 0) {
    fail(ErrorCode::kInvalidArgument, "--max-new-tokens is {}, expected 0 or more", options.max_new_tokens);
  }
  if (options.engine.prefill_chunk < 1) {
    fail(ErrorCode::kInvalidArgument, "--prefill-chunk is {}, expected 1 or more", options.engine.prefill_chunk);
  }
}

std::vector<int32_t> prompt_of(const GenerateOptions& options, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = options.prompt_ids;
  if (ids.empty()) {
    ids = tokenizer.encode(options.prompt, options.markup ? EncodeMode::kMarkup : EncodeMode::kText);
  }
  return ids;
}

// One generation: the state of the sequence and of the text.
class Generation {
 public:
  Generation(const GenerateOptions& options, TextModel& model, const TextSink& sink)
      : options_(options),
        model_(model),
        sink_(sink),
        sampler_(options.sampling),
        decoder_(model.tokenizer()),
        stops_(options.stop),
        session_(options.load_state.empty()
                     ? Session(model.model())
                     : Session(model.model(), load_snapshot(model.snapshot_shape(), options.load_state))) {}

  const Session& session() const { return session_; }

  // False when it was stopped.
  bool prefill(const std::vector<int32_t>& ids, ProgressSink* progress) {
    if (static_cast<int64_t>(ids.size()) > session_.room()) {
      fail(ErrorCode::kInvalidArgument, "the prompt has {} tokens after {}, max_position_embeddings is {}", ids.size(),
           session_.position(), model_.model().config().max_position_embeddings);
    }
    const int64_t done = session_.extend(ids, {options_.engine.prefill_chunk, progress, options_.stop_flag});
    if (progress != nullptr) progress->make_way();
    return done == static_cast<int64_t>(ids.size());
  }

  void run(GenerateResult& result) {
    result.finish = FinishReason::kLength;
    sampler_.seek(session_.position());
    while (static_cast<int64_t>(result.ids.size()) < options_.max_new_tokens) {
      const int32_t id = sampler_.sample(session_.logits());
      result.ids.push_back(id);
      if (!options_.ignore_eos && model_.is_end(id)) {
        result.finish = FinishReason::kEos;
        break;
      }
      if (!show(stops_.push(decoder_.push(id)), result)) return;
      if (stops_.matched()) {
        finish_at_stop(result);
        return;
      }
      const bool last = static_cast<int64_t>(result.ids.size()) == options_.max_new_tokens;
      if (last || session_.room() == 0) break;
      if (is_stopped()) {
        result.finish = FinishReason::kCancelled;
        break;
      }
      session_.extend({&id, 1});
    }
    // The end of the text: an unfinished character, then what might have become a stop string.
    std::string rest = stops_.push(decoder_.flush());
    if (stops_.matched()) finish_at_stop(result);
    rest += stops_.flush();
    show(rest, result);
  }

  // The last token was not needed to go on; a state is of all of them.
  void save(const GenerateResult& result) {
    const auto run = static_cast<size_t>(session_.position() - prompt_end(result));
    if (run < result.ids.size() && session_.room() > 0) session_.extend(std::span(result.ids).subspan(run, 1));
    save_snapshot(session_.snapshot(), model_.snapshot_shape(), options_.save_state);
  }

 private:
  static int64_t prompt_end(const GenerateResult& result) {
    return result.loaded_tokens + static_cast<int64_t>(result.prompt_ids.size());
  }

  bool is_stopped() const {
    return options_.stop_flag != nullptr && options_.stop_flag->load(std::memory_order_relaxed);
  }

  void finish_at_stop(GenerateResult& result) const {
    result.finish = FinishReason::kStop;
    result.stop = *stops_.matched();
  }

  // False when the sink wants no more.
  bool show(const std::string& text, GenerateResult& result) const {
    if (text.empty()) return true;
    result.text += text;
    if (sink_ == nullptr || sink_(text)) return true;
    result.finish = FinishReason::kCancelled;
    return false;
  }

  const GenerateOptions& options_;
  TextModel& model_;
  const TextSink& sink_;
  Sampler sampler_;
  StreamingDecoder decoder_;
  StopStrings stops_;
  Session session_;
};

}  // namespace

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

GenerateResult generate(const GenerateOptions& options, const TextSink& sink, ProgressSink* progress) {
  check_options(options);
  if (!options.save_state.empty()) check_snapshot_place(options.save_state);
  const Stopwatch load_time;
  TextModel model(options.model, options.engine);

  GenerateResult result;
  result.prompt_ids = prompt_of(options, model.tokenizer());
  Generation generation(options, model, sink);
  result.loaded_tokens = generation.session().position();
  if (result.prompt_ids.empty() && result.loaded_tokens == 0)
    fail(ErrorCode::kInvalidArgument, "the prompt is empty, and no token is added to it: nothing to continue");
  result.load_seconds = load_time.seconds();
  result.plan = model.engine().plan();

  const Stopwatch prefill_time;
  result.prompt_is_read = generation.prefill(result.prompt_ids, progress);
  result.prefill_seconds = prefill_time.seconds();
  if (!result.prompt_is_read) {
    result.finish = FinishReason::kCancelled;
    return result;
  }

  const Stopwatch decode_time;
  generation.run(result);
  result.decode_seconds = decode_time.seconds();
  if (!options.save_state.empty()) generation.save(result);
  result.stream = model.engine().stream_report();
  return result;
}

}  // namespace trefoil
