// Whether evaluation text was calibrated on, from what a checkpoint's quantization_report.json says about its
// calibration: the comparison of `quantize --held-out` (text/shared_passages.h). docs/evaluation.md, "Held out".
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "eval/eval_record.h"
#include "eval/eval_text.h"

namespace trefoil {

// "no: ..." (not seen: the text is held out), "partly: ...", "yes: ...", or "unknown: ..." with the reason. "yes" is
// the same file, or half of the documents' tokens inside shared passages. A checkpoint without calibration (RTN, the source
// itself) says "no". Error(kCorrupt) when the report is there and not JSON.
std::string held_out_verdict(const std::filesystem::path& folder, std::span<const TextFacts> files,
                             const EvalText& text);

}  // namespace trefoil
