// The checks of verify() that compare with the source checkpoint or with published sums.
#pragma once

#include <string>

#include "base/parallel.h"
#include "eval/verify_experts.h"
#include "eval/verify_scan.h"
#include "trefoil/verify.h"

namespace trefoil {

// "unchanged": every tensor of the source that is not a routed expert's is here with the same bytes; none was added.
VerifyCheck check_unchanged(const FolderScan& scan, const VerifyOptions& options, const ExpertSet& experts,
                            const Checkpoint& source, ThreadPool& pool);

// "side_files": the source's side files are here byte for byte, those a quantizer writes anew excepted, and config.json
// differs in quantization_config only.
VerifyCheck check_side_files(const FolderScan& scan, const VerifyOptions& options, const Checkpoint& source);

// "sums": every line of SHA256SUMS is true, and every shard, the index and the config have one. Skipped without the
// file.
VerifyCheck check_sums(const FolderScan& scan, const VerifyOptions& options, ThreadPool& pool);

}  // namespace trefoil
