// The same quantized weights in another standard storage: padded <-> dense 3 bits, 3 -> 4 bits, and 4 -> 3 bits where
// every code fits. Lossless: decoded weights are equal bit for bit, which is checked before the output appears under
// its name. docs/formats.md, "Recode".
//
// There and back gives the same bytes in every file, for a checkpoint this program wrote. What a form cannot say (a W4
// config must not name an actorder; the padded order of tensors is not the dense one) is kept in recode.json, which
// lies in the output until a later recode restores the form it describes.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trefoil/progress.h"

namespace trefoil {

enum class PackedForm {
  kW3Dense,   // 3 bits, gap-free: compressed-tensors 0.18 and later
  kW3Padded,  // 3 bits, ten codes a word: compressed-tensors 0.17
  kW4,        // 4 bits: the same in every version. As large as the MXFP4 release
};
const char* to_string(PackedForm form);                              // "w3-dense", "w3-padded", "w4"
std::optional<PackedForm> parse_packed_form(std::string_view name);  // nothing for any other name

struct RecodeOptions {
  std::filesystem::path input;
  std::filesystem::path output;  // absent, empty, or with `overwrite` an earlier output
  PackedForm to = PackedForm::kW3Dense;
  bool overwrite = false;
  int threads = 1;
  ProgressSink* progress = nullptr;         // may be null
  const std::atomic<bool>* stop = nullptr;  // set it to make recode() throw Error(kCancelled) soon
};

struct RecodeResult {
  PackedForm from = PackedForm::kW3Dense;
  PackedForm to = PackedForm::kW3Dense;
  int64_t num_linears = 0;
  uint64_t input_bytes = 0;  // of tensors
  uint64_t output_bytes = 0;
};

// Holds one tensor in memory at a time. Nothing appears in `output` unless all of it does.
// Errors: kInvalidArgument (output not empty or the input, the input already has that form), kUnsupported (no or other
// packed Linears; a code that does not fit, with tensor, row, column and code), kCorrupt, kNotFound, kIo, kOverBudget
// (disk).
RecodeResult recode(const RecodeOptions& options);

}  // namespace trefoil
