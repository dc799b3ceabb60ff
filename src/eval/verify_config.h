// The check of verify() that config.json tells the truth about the tensors.
#pragma once

#include "eval/verify_experts.h"
#include "eval/verify_scan.h"
#include "trefoil/verify.h"

namespace trefoil {

// num_bits of the first group of whatever quantization_config can be read; 0 when there is none.
int claimed_bits(const FolderScan& scan);

// "config": exactly one quantization_config, and what it says of format, bits, group, version, targets and ignore list
// is what the tensors are, also under the names that loaders of fused experts ask with (w1 -> gate_proj, w3 -> up_proj,
// w2 -> down_proj). For an MXFP4 checkpoint a wrong ignore list is a warning: the release itself has one.
VerifyCheck check_config(const FolderScan& scan, const VerifyOptions& options, const ExpertSet& experts);

}  // namespace trefoil
