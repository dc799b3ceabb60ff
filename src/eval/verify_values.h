// The checks of verify() that read expert weights: one pass over each Linear answers all of them.
#pragma once

#include <vector>

#include "base/parallel.h"
#include "eval/verify_experts.h"
#include "trefoil/verify.h"

namespace trefoil {

// "scales"   finite and non-zero; negative, subnormal and 2^-7 ones counted
// "pad_bits" bits that hold no code are zero
// "codes"    no matrix has one code only, unless the source's groups are constant
// "decode"   decode_linear and the slow second path give the same bf16 bits
// "weights"  with a source: shapes equal and ||W - W_source|| / ||W_source|| at most max_weight_error
// `checkpoint` is null when the folder does not open, `source` when there is none or it does not open (`no_source` says
// which). Linears without a storage are left out: check_shapes() named them.
std::vector<VerifyCheck> check_values(const FolderScan& scan, const VerifyOptions& options, const ExpertSet& experts,
                                      const Checkpoint* checkpoint, const Checkpoint* source,
                                      const std::string& no_source, ThreadPool& pool);

}  // namespace trefoil
