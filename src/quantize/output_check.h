// Reads a written output back before anybody is told that it is one. docs/formats.md, "Output".
// It looks at structure; `verify` also compares values with the source.
#pragma once

#include <vector>

#include "quantize/shard_plan.h"

namespace trefoil {

// A whole output: opens it as any reader would, resolves every expert Linear and compares it with the plan, and demands
// exactly one quantization_config, at the top level. Error(kCorrupt) says what is not as planned.
void check_output(const fs::path& folder, const std::vector<ShardPlan>& plans, const std::vector<MoeLayer>& layers,
                  const ExpertEncoding& encoding);

// Some shards without index: every planned tensor is in its shard.
void check_shards(const fs::path& folder, const std::vector<ShardPlan>& plans);

}  // namespace trefoil
