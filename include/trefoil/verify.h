// Checks a checkpoint folder and says everything that is wrong with it, not only the first thing. docs/formats.md,
// "What verify checks".
//
// Not for loading: a checkpoint that does not open is what this is for. Reads only; the folder is never changed.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trefoil/progress.h"

namespace trefoil {

struct VerifyOptions {
  std::filesystem::path folder;
  // The checkpoint it was made from. Without one the checks that compare are reported as skipped.
  std::filesystem::path against;
  // Expert Linears of a layer whose values are read, evenly spread, the first and the last among them; 0 reads all.
  // Headers, names, shapes, config, unchanged tensors and sums are always checked in full.
  int64_t sample_per_layer = 0;
  int threads = 1;
  // Reads every file once more when there is a SHA256SUMS.
  bool check_sums = true;
  // ||W - W_source|| / ||W_source|| above which an expert's weights cannot come from its source. Rounding at 3 bits
  // gives 0.2 to 0.4; another expert's weights give at least 1.
  double max_weight_error = 0.6;
  // Findings listed per check; all are counted.
  size_t max_findings = 20;
  ProgressSink* progress = nullptr;         // may be null
  const std::atomic<bool>* stop = nullptr;  // set it to make verify() throw Error(kCancelled) soon
};

enum class CheckStatus { kPass, kWarn, kFail, kSkipped };
const char* to_string(CheckStatus status);

struct VerifyFinding {
  bool is_failure = true;  // false: worth knowing, not wrong
  std::string tensor;      // or module, or empty
  std::string file;        // shard or side file, or empty
  std::string expected;
  std::string found;
};

struct VerifyCheck {
  std::string id;     // stable: "container", "index", ... (docs/cli.md)
  std::string title;  // what holds when it passes
  CheckStatus status = CheckStatus::kPass;
  uint64_t checked = 0;                   // things looked at
  std::string unit;                       // what they are: "tensors", "expert Linears"
  uint64_t failures = 0;                  // all of them
  uint64_t warnings = 0;                  // all of them
  std::vector<VerifyFinding> findings;    // the first max_findings, failures before warnings
  std::vector<std::string> notes;         // facts for a person; why it was skipped
  std::map<std::string, double> figures;  // facts for a program: "negative_scales", "mean_weight_error"
};

struct VerifyReport {
  std::string folder;
  std::string against;  // empty without a source
  std::vector<VerifyCheck> checks;

  bool passed() const;                                   // no check failed
  const VerifyCheck* find(const std::string& id) const;  // null when absent
  std::string to_text() const;                           // a table, then the findings
  std::string to_json() const;
};

// Error(kNotFound) when `folder` or `against` is not a folder, kInvalidArgument for impossible options; whatever is
// wrong inside the folders is a finding.
VerifyReport verify(const VerifyOptions& options);

}  // namespace trefoil
