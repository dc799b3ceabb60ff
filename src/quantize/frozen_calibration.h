// The exact calibration ids as a file, to calibrate on again: docs/formats.md, "Frozen calibration".
#pragma once

#include <cstdint>
#include <string>

#include "quantize/calibration.h"
#include "trefoil/quantize.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

// What ids mean something under.
struct TokenizerIdentity {
  std::string tiktoken_sha256;  // of tiktoken.model
  int32_t vocab_size = 0;
};
TokenizerIdentity tokenizer_identity(const Tokenizer& tokenizer, const std::filesystem::path& folder);

// Whether options.calibration is a frozen set: one file named *.safetensors. Error(kInvalidArgument) when such a file
// stands beside others, has a weight, or meets a seed, which would be ignored.
bool is_frozen_calibration(const QuantizeOptions& options);

// The rows as they are. Error(kCorrupt) for a file that is no frozen set or whose ids have another hash than it says;
// Error(kInvalidArgument) for another tokenizer, another row length, or more rows than asked for.
CalibrationSet load_frozen_calibration(const QuantizeOptions& options, const TokenizerIdentity& tokenizer);

// Writes options.save_calibration. A file that is there stays if it holds these rows; another is replaced only with
// options.overwrite.
void save_frozen_calibration(const CalibrationSet& set, const QuantizeOptions& options,
                             const TokenizerIdentity& tokenizer);

}  // namespace trefoil
