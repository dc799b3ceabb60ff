// One group of 16 rows under refinement: the state while everything outside the group is fixed, and the moves on it.
//
//   change of the objective when the group's values change by D:   -2 D . T + D H D^T
//   T = E H_damped on the group's columns (kept current by every move), H = H_gg damped, [size, size]
//
// Each move is applied per lane (row), where it lowers the objective, and adds what it gained to `gain`. Arrays of the group are
// [size, kLanes] f32, any alignment. The implementations do the same operations in the same order, products added
// by fused multiply-add: one result on every instruction set. No allocation, no failure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/cpu.h"
#include "quantize/lanes.h"

namespace trefoil {

struct GroupState {
  int64_t size;
  const float* block;  // H, positive definite
  float* gradient;     // T
  float* code;
  float* dequantized;  // bf16(code * scale)
  float* scale;        // [kLanes]
  double* gain;        // [kLanes]
  float* scratch;      // group_scratch_floats(size)
  float code_low;      // lanes::CodeRange
  float code_high;
  bool positive_scales;  // ScaleSign::kPositive
};

// H = N D N^T in the order of descending diagonal (ties by index): what nearest plane needs.
struct BlockFactor {
  std::vector<int64_t> order;  // [size]
  std::vector<float>
      spread;                // [size, size], row j holds N_ij for i < j: what errors of earlier columns add to column j
  std::vector<float> pivot;  // [size] D
};
BlockFactor factor_block(std::span<const float> block, int64_t size);

struct PairSearch {
  const int64_t* order;
  const float* spread;
  const float* pivot;
  const float* factors;  // [num_factors] candidates for the scale, as multiples of the current one
  int64_t num_factors;
};

struct GroupMoves {
  // The least-squares scale of the current codes, s + (z . T) / (z H z^T), rounded to bf16. True when some lane moved.
  bool (*update_scale)(const GroupState& group);
  // One cyclic pass over the codes, each set to the best value with all others fixed. True when some lane moved.
  bool (*descend_codes)(const GroupState& group);
  // Looks for a better scale and codes at once: for every factor, the scale times the factor (bf16) and the codes that nearest
  // plane gives for it on the group's conditional optimum Q + T H^-1. Coordinate moves cannot reach these: a new scale pays
  // only together with new codes. True when some lane moved.
  bool (*search_pairs)(const GroupState& group, const PairSearch& search);
};

constexpr int kLargestBatch = 8;  // scales that an implementation tries at once
int64_t group_scratch_floats(int64_t size);

// Best first; each entry returns its table.
GroupMoves group_moves_avx512();
GroupMoves group_moves_avx2();
GroupMoves group_moves_scalar();
constexpr Impl<GroupMoves()> kGroupMoves[] = {
    {Isa::kAvx512, group_moves_avx512},
    {Isa::kAvx2, group_moves_avx2},
    {Isa::kScalar, group_moves_scalar},
};

}  // namespace trefoil
