// The check of verify() that every weight which is stored as a number is one.
#pragma once

#include "base/parallel.h"
#include "eval/verify_experts.h"
#include "eval/verify_scan.h"
#include "trefoil/verify.h"

namespace trefoil {

// "finite": no floating tensor but those of expert Linears (whose scales and decoded values have checks of their own)
// holds an infinity or a NaN.
VerifyCheck check_finite(const FolderScan& scan, const VerifyOptions& options, const ExpertSet& experts,
                         ThreadPool& pool);

}  // namespace trefoil
