// The `eval` commands as a library: what a checkpoint lost against the one it came from. docs/evaluation.md says what
// every number means and how it is computed.
//
//   ppl    perplexity of each model, paired ratio to the reference
//   kld    perplexity, KL divergence of the next-token distributions, agreement, noise floor; probes on request
//   probe  where it is lost: expert weights, isolated layers, residual streams and routing
//
// Models are read side by side, a batch of rows at a time; no model is ever loaded as a whole and no logits are kept.
// Results do not depend on the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trefoil/error.h"
#include "trefoil/numerics.h"
#include "trefoil/progress.h"

namespace trefoil {

enum class EvalCommand { kPpl, kKld, kProbe };
const char* to_string(EvalCommand command);

struct EvalModel {
  std::string label;  // what reports call it; unique
  std::filesystem::path folder;
};

struct EvalOptions {
  // kF32: no rounding between operations, so that differences are the weights' alone. kBf16: rounds where the release
  // rounds, as it will be served.
  enum class Numerics { kF32, kBf16 };

  EvalModel reference{"original", {}};
  std::vector<EvalModel> candidates;  // kKld and kProbe need at least one
  std::vector<std::filesystem::path> texts;

  int64_t ctx_size = 512;     // tokens of a row
  bool per_document = false;  // rows begin with documents and end with them; else rows are packed, one source each
  int64_t max_rows = 0;       // 0: all the text gives; else this many, evenly spread
  Numerics numerics = Numerics::kF32;
  KernelMode kernels = KernelMode::kReference;  // of all models; another needs bf16 numerics
  int threads = 0;                              // 0: every CPU this process may use
  int64_t batch_rows = 8;     // rows read together: more reads the weights less often and takes more memory
  int64_t prefill_chunk = 0;  // tokens of each row read at a time; 0: the whole row
  uint64_t seed = 1;          // of the bootstrap
  int bootstrap_replicates = 1000;
  int64_t noise_rows = 16;  // kKld: rows of the noise floor; 0: none

  bool with_probes = false;   // kKld: the probes too
  int64_t probe_rows = 16;    // rows of the activation probes, evenly spread; 0: all
  int64_t probe_experts = 0;  // experts of each layer whose weights are compared, evenly spread; 0: all

  std::vector<std::string> fail_if;  // "kld.mean>0.05"; docs/evaluation.md, "Conditions"
  std::string date;                  // goes into the report as it is; may be empty

  const std::atomic<bool>* stop =
      nullptr;  // set it to make evaluate() throw Error(kCancelled) at the next batch or layer
};

struct EvalRecord;

// What was found. Cheap to copy; immutable.
class EvalReport {
 public:
  explicit EvalReport(std::shared_ptr<const EvalRecord> record) : record_(std::move(record)) {}

  std::string to_json() const;
  std::string to_markdown() const;
  std::string to_html() const;  // one self-contained page
  std::string to_text() const;  // the main tables for a terminal

  // Writes COMMAND.json, COMMAND.md and COMMAND.html (kld.json, ...), making the folder if need be. Error(kIo).
  void write(const std::filesystem::path& folder) const;

  // False when a fail_if condition was violated.
  bool passed() const;
  // A number under its dotted name in the JSON ("candidates.trefoil.kld.mean"); nothing when there is none of that name
  // or it has no value.
  std::optional<double> number(std::string_view name) const;

  const EvalRecord& record() const { return *record_; }

 private:
  std::shared_ptr<const EvalRecord> record_;
};

// Runs one command. Errors: kInvalidArgument for options that contradict each other, fail_if included, before any model
// runs; kCorrupt / kNotFound / kUnsupported for a folder that is not a model, and for logits that are not finite
// (model, row and position named). A violated fail_if is no Error: the report says it. `progress` may be null. kPpl
// without a reference folder takes the first candidate as the reference.
EvalReport evaluate(EvalCommand command, const EvalOptions& options, ProgressSink* progress = nullptr);

}  // namespace trefoil
