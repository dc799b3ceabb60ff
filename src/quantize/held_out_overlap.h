// Whether texts that are meant for judging occur in the calibration. docs/quantization.md, "Held-out texts".
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trefoil/tokenizer.h"

namespace trefoil {

// Shorter documents are not judged: so few ids may well be a common phrase.
inline constexpr int64_t kShortestJudged = 13;

struct HeldOutFile {
  std::string name;  // without folders
  std::string sha256;
  int64_t documents = 0;
  int64_t too_short = 0;    // of them, with fewer than kShortestJudged ids
  int64_t overlapping = 0;  // of them, with a run of min(kSharedRun, length) ids that the calibration holds too
  int64_t contained = 0;    // of these, with every id in such a run
  int64_t tokens = 0;
  int64_t shared_tokens = 0;  // in such runs
};

struct HeldOutOverlap {
  std::vector<HeldOutFile> files;
  int64_t rows = 0;  // of the calibration, that hold some of a shared run
};

// Documents are encoded apart; the rows are read as one stream. Errors as for_each_document() and document_ids().
HeldOutOverlap find_overlap(std::span<const std::vector<int32_t>> rows, std::span<const std::filesystem::path> files,
                            const Tokenizer& tokenizer);

}  // namespace trefoil
