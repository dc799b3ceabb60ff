// Calibration data: documents turned into equal rows of token ids, and what the report says about where they came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/model_config.h"

namespace trefoil {

struct CalibrationFile {
  std::string name;  // without folders
  uint64_t bytes = 0;
  std::string sha256;
  int64_t documents = 0;
};

struct CalibrationSet {
  std::vector<CalibrationFile> files;
  int64_t documents_used = 0;  // the first ones, in the seed's order
  int64_t row_length = 0;
  std::vector<std::vector<int32_t>> rows;  // each row_length ids; documents run on across row ends, no padding
  std::string token_ids_sha256;            // of the ids, row after row, as little-endian int32

  int64_t num_tokens() const { return static_cast<int64_t>(rows.size()) * row_length; }
};

// Tokenizes `files` with the source's own tokenizer and packs at most `num_rows` rows of `row_length`, documents in an
// order given by `seed`. Fewer rows when the text is shorter; Error(kInvalidArgument) when it does not fill one row,
// and Error(kCorrupt) for an id the model has no embedding for.
CalibrationSet load_calibration(const fs::path& source, const ModelConfig& config, const std::vector<fs::path>& files,
                                int64_t num_rows, int64_t row_length, uint64_t seed);

}  // namespace trefoil
