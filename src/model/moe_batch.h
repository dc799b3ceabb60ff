// The tokens of a block by the experts that they use. For moe.cpp and moe_tiles.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace trefoil {

// The use of one expert: `count` rows of a batch from `begin`.
struct ExpertGroup {
  int64_t expert = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// A run of experts, ascending, that is worked on at once.
struct ExpertBatch {
  std::vector<ExpertGroup> groups;
  std::span<const int64_t> assignment;  // one per row, into [tokens, top_k] of the routing

  int64_t assignment_of(const ExpertGroup& group, int64_t row) const {
    return assignment[static_cast<size_t>(group.begin + row)];
  }
  int64_t token(const ExpertGroup& group, int64_t row, int64_t top_k) const { return assignment_of(group, row) / top_k; }
};

// True when w1, w2 and w3 of every expert of the groups are in tiles.
bool all_in_tiles(std::span<const ExpertLinears> experts, std::span<const ExpertGroup> groups);

}  // namespace trefoil
