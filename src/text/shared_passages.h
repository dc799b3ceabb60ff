// Which documents of a text that is meant for judging stand in a calibration too, in whole or in parts: the one
// comparison behind `quantize --held-out` and what `eval` says of a candidate. docs/quantization.md, "Held-out texts".
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_set>
#include <vector>

#include "text/shared_runs.h"

namespace trefoil {

// Shorter documents are not judged: so few ids may well be a common phrase.
inline constexpr int64_t kShortestJudged = 13;

struct SharedPassages {
  int64_t documents = 0;
  int64_t too_short = 0;    // of them, with fewer than kShortestJudged ids
  int64_t overlapping = 0;  // of them, with a run of min(kSharedRun, length) ids that the calibration holds too
  int64_t contained = 0;    // of these, with every id in such a run
  int64_t tokens = 0;
  int64_t shared_tokens = 0;  // in such runs
};

class PassageFinder {
 public:
  // `calibration`: its rows, each row_length ids, one after the other. They are read as one stream, for documents run on
  // across rows.
  PassageFinder(std::vector<int32_t> calibration, size_t row_length);

  // Counts a document, which is looked at alone: what ends one document and begins the next is no passage of either.
  void judge(std::span<const int32_t> ids, SharedPassages* found);

  // Of the calibration, that hold some of a shared run which judge() has found so far.
  int64_t rows_with_shared_runs() const;

 private:
  const std::vector<uint64_t>& runs_of(size_t length);

  std::vector<int32_t> stream_;
  size_t row_length_;
  std::map<size_t, std::vector<uint64_t>> runs_;           // hashes of the calibration's, sorted, by length
  std::map<size_t, std::unordered_set<uint64_t>> shared_;  // by length, those found in held-out text
};

}  // namespace trefoil
