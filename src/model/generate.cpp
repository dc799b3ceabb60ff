#include "trefoil/generate.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/parallel.h"
#include "model/checkpoint_weights.h"
#include "model/model.h"
#include "model/sampler.h"
#include "model/stop_strings.h"
#include "trefoil/tokenizer.h"

namespace trefoil {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

void check_options(const GenerateOptions& options) {
  if (options.max_new_tokens < 0) {
    fail(ErrorCode::kInvalidArgument, "max_new_tokens is {}, expected 0 or more", options.max_new_tokens);
  }
  if (options.prefill_chunk < 1) {
    fail(ErrorCode::kInvalidArgument, "prefill_chunk is {}, expected 1 or more", options.prefill_chunk);
  }
}

std::vector<int32_t> prompt_of(const GenerateOptions& options, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = options.prompt_ids;
  if (ids.empty()) {
    ids = tokenizer.encode(options.prompt, options.markup ? EncodeMode::kMarkup : EncodeMode::kText);
  }
  if (ids.empty())
    fail(ErrorCode::kInvalidArgument, "the prompt is empty, and no token is added to it: nothing to continue");
  return ids;
}

// A tokenizer that names ids the model has not, or fewer, belongs to another model.
void check_vocabulary(const Tokenizer& tokenizer, const ModelConfig& config) {
  if (tokenizer.vocab_size() != config.vocab_size) {
    fail(ErrorCode::kCorrupt, "the tokenizer has {} ids, the config's vocab_size is {}", tokenizer.vocab_size(),
         config.vocab_size);
  }
}

// One generation: the state of the sequence and of the text.
class Generation {
 public:
  Generation(const GenerateOptions& options, const Model& model, const Tokenizer& tokenizer, const TextSink& sink)
      : options_(options),
        model_(model),
        sink_(sink),
        sampler_(options.sampling),
        decoder_(tokenizer),
        stops_(options.stop),
        state_(model.new_sequence()) {}

  void prefill(const std::vector<int32_t>& ids, ProgressSink* progress) {
    const int64_t total = static_cast<int64_t>(ids.size());
    if (total > model_.config().max_position_embeddings) {
      fail(ErrorCode::kInvalidArgument, "the prompt has {} tokens, max_position_embeddings is {}", total,
           model_.config().max_position_embeddings);
    }
    for (int64_t begin = 0; begin < total; begin += options_.prefill_chunk) {
      const int64_t count = std::min(options_.prefill_chunk, total - begin);
      logits_ =
          model_.forward(std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)), state_, true);
      if (progress != nullptr) progress->update("prefill", begin + count, total);
    }
  }

  void run(GenerateResult& result) {
    result.finish = FinishReason::kLength;
    while (static_cast<int64_t>(result.ids.size()) < options_.max_new_tokens) {
      const int32_t id = sampler_.sample(logits_);
      result.ids.push_back(id);
      if (!options_.ignore_eos && is_eos(id)) {
        result.finish = FinishReason::kEos;
        break;
      }
      if (!show(stops_.push(decoder_.push(id)), result)) return;
      if (stops_.matched()) {
        finish_at_stop(result);
        return;
      }
      const bool last = static_cast<int64_t>(result.ids.size()) == options_.max_new_tokens;
      if (last || state_.position == model_.config().max_position_embeddings) break;
      logits_ = model_.forward({&id, 1}, state_, true);
    }
    // The end of the text: an unfinished character, then what might have become a stop string.
    std::string rest = stops_.push(decoder_.flush());
    if (stops_.matched()) finish_at_stop(result);
    rest += stops_.flush();
    show(rest, result);
  }

 private:
  bool is_eos(int32_t id) const {
    const std::vector<int64_t>& eos = model_.config().eos_token_ids;
    return std::find(eos.begin(), eos.end(), id) != eos.end();
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
  const Model& model_;
  const TextSink& sink_;
  Sampler sampler_;
  StreamingDecoder decoder_;
  StopStrings stops_;
  SequenceState state_;
  std::vector<float> logits_;  // after the last token run
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
  const Stopwatch load_time;
  const ModelConfig config = load_model_config(options.model);
  const Tokenizer tokenizer = Tokenizer::load(options.model);
  check_vocabulary(tokenizer, config);
  GenerateResult result;
  result.prompt_ids = prompt_of(options, tokenizer);

  ThreadPool pool(options.threads > 0 ? options.threads : usable_cpus());
  const auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(options.model));
  // Absorbed attention for the prompt too: one arithmetic for every token, so that the chunk size cannot matter.
  const Model model(config, std::make_shared<CheckpointWeights>(checkpoint),
                    {.numerics = options.numerics, .kda = KdaForm::kRecurrent, .mla = MlaForm::kAbsorbed}, pool);
  Generation generation(options, model, tokenizer, sink);
  result.load_seconds = load_time.seconds();

  const Stopwatch prefill_time;
  generation.prefill(result.prompt_ids, progress);
  result.prefill_seconds = prefill_time.seconds();

  const Stopwatch decode_time;
  generation.run(result);
  result.decode_seconds = decode_time.seconds();
  return result;
}

}  // namespace trefoil
