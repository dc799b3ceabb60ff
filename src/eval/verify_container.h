// The checks of verify() that look at files and headers only: shards, index, and whether the product opens the folder.
#pragma once

#include <optional>

#include "checkpoint/checkpoint.h"
#include "eval/verify_scan.h"
#include "trefoil/verify.h"

namespace trefoil {

// "container": every shard is there and its header obeys the safetensors rules.
VerifyCheck check_container(const FolderScan& scan, const VerifyOptions& options);

// "index": index and shards name the same tensors in the same places, none twice, total_size adds up.
VerifyCheck check_index(const FolderScan& scan, const VerifyOptions& options);

// "opens": Checkpoint::open accepts the folder. The checkpoint it gave, for the checks that decode through it.
VerifyCheck check_opens(const FolderScan& scan, const VerifyOptions& options, std::optional<Checkpoint>* checkpoint);

}  // namespace trefoil
