// Calibration data: documents turned into equal rows of token ids, or rows frozen by an earlier run, and what the report
// says about where they came from. docs/quantization.md, "Calibration".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "quantize/held_out_overlap.h"
#include "text/script_shares.h"
#include "trefoil/quantize.h"

namespace trefoil {

struct CalibrationFile {
  std::string name;  // without folders
  uint64_t bytes = 0;
  std::string sha256;
  int64_t documents = 0;                  // in the file
  std::optional<int64_t> documents_used;  // of them, that gave ids; nothing in frozen sets that do not tell
  int64_t tokens = 0;                     // in the rows
  std::optional<double> weight;           // as asked for; nothing when files were not mixed by weight
};

// Documents with the same "source".
struct CalibrationOrigin {
  std::string source;
  int64_t tokens = 0;  // in the rows
};

// The file of a frozen set.
struct FrozenFile {
  std::string name;
  std::string sha256;
};

struct CalibrationSet {
  std::vector<CalibrationFile> files;
  std::vector<CalibrationOrigin> sources;  // most tokens first
  std::optional<FrozenFile> frozen;        // the rows are from there, and so are files and sources
  int64_t documents_used = 0;              // that gave ids, the first ones in the seed's order
  int64_t row_length = 0;
  std::vector<std::vector<int32_t>> rows;  // each row_length ids; documents run on across row ends, no padding
  std::string token_ids_sha256;            // of the ids, row after row, as little-endian int32
  std::vector<ScriptShare> scripts;        // of the rows' text
  std::optional<HeldOutOverlap> held_out;

  int64_t num_tokens() const { return static_cast<int64_t>(rows.size()) * row_length; }
};

// The rows that `options` ask for: at most num_calibration_samples of max_seq_length ids from options.calibration,
// tokenized with the source's own tokenizer. Writes options.save_calibration; says through `progress` when the text is
// short, a file of a mix is used up, or held-out text overlaps.
//
// Without weights the documents of all files are one pool, in the order of the seed. With weights every file is a pool
// of its own, packed into rows of its own, and each next row is taken from the file that is furthest behind its share.
// The same files, options and tokenizer give the same ids everywhere.
//
// Error(kInvalidArgument) when the text does not fill one row, for an id the tokenizer does not know, for a frozen set
// of another row length or tokenizer, and, with refuse_overlap, for held-out text that overlaps; Error(kCorrupt) for
// files that are damaged and for an id the model has no embedding for.
CalibrationSet load_calibration(const QuantizeOptions& options, const ModelConfig& config, ProgressSink& progress);

// Of the ids, row after row, as little-endian int32.
std::string hash_of_rows(const std::vector<std::vector<int32_t>>& rows);

}  // namespace trefoil
