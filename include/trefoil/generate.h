// Text generation from a checkpoint, in any storage Trefoil reads. Part of the public interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trefoil/engine.h"
#include "trefoil/progress.h"

namespace trefoil {

// How the next token is picked from the logits. The steps, in order:
//   1. temperature 0: the largest logit (the lowest id of equal ones) and nothing below applies;
//      otherwise p = softmax(logits / temperature), sorted descending, equal ones by ascending id
//   2. top_k : the first top_k tokens are kept                      (0 keeps all)
//   3. top_p : of those, renormalised, the shortest run from the top whose sum reaches top_p   (1 keeps all)
//   4. min_p : of those, the ones with p >= min_p * (the largest p)  (0 keeps all)
//   5. one draw from what is left, renormalised, by one number of the generator
// The generator is SplitMix64 started at `seed`, and the token at position p of the sequence is drawn with its number p:
// equal options, logits and seed give equal tokens on every machine, wherever a sequence was interrupted.
struct SamplingOptions {
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  uint64_t seed = 0;
};

struct GenerateOptions {
  std::filesystem::path model;      // folder of the checkpoint, with its tokenizer files
  std::string prompt;               // UTF-8; used when prompt_ids is empty
  std::vector<int32_t> prompt_ids;  // the prompt as ids, taken as they are
  bool markup = false;              // names of special tokens in `prompt` become their ids (else they are plain text)
  int64_t max_new_tokens = 256;
  SamplingOptions sampling;
  std::vector<std::string> stop;  // UTF-8, none empty; generation ends before the first of them appears in the text
  bool ignore_eos = false;        // go on after the model's end tokens
  EngineOptions engine;           // how the model is held and run
  // A sequence as a file, docs/formats.md, "Sequence state". What is loaded stands before the prompt, which may then be
  // empty; what is saved has seen the prompt and all generated tokens (but for a last one without room in the context).
  std::filesystem::path load_state, save_state;
  const std::atomic<bool>* stop_flag = nullptr;  // set it to end the text soon, also between two chunks of the prompt
};

enum class FinishReason {
  kEos,        // an end token of the model
  kStop,       // a stop string
  kLength,     // max_new_tokens, or the model's context is full
  kCancelled,  // the sink or the stop flag said so
};
const char* to_string(FinishReason reason);

struct GenerateResult {
  int64_t loaded_tokens = 0;  // of load_state
  std::vector<int32_t> prompt_ids;
  bool prompt_is_read = false;  // the prompt was run whole, not cancelled before; else nothing is saved
  std::vector<int32_t> ids;     // generated, an end token and the tokens of a stop string included
  std::string text;  // what the sink got, joined: without an end token, without a stop string and what follows it
  FinishReason finish = FinishReason::kLength;
  std::string stop;  // the stop string that ended it
  MemoryPlan plan;
  std::optional<StreamReport> stream;  // with experts on the drive
  double load_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;  // everything after the prompt
};

// Gets whole UTF-8 characters, never a part of a stop string. Returns false to end the generation.
using TextSink = std::function<bool(std::string_view text)>;

// Loads the model, runs the prompt, generates. Errors: kInvalidArgument for options out of range, an empty prompt (no
// BOS is ever added) or one longer than the context, and the state of another model; those of opening the checkpoint
// and its tokenizer, and of reading and writing states; kCorrupt when logits are not finite.
GenerateResult generate(const GenerateOptions& options, const TextSink& sink, ProgressSink* progress = nullptr);

}  // namespace trefoil
