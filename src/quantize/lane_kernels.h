// The two loops of the solver over columns that are not matrix products, each for kLanes rows at a time (lanes.h): the sweep
// inside a block of columns, and the scale search of a group. One implementation per instruction set; all do the same
// unfused operations in the same order and give the same bits. No allocation, no failure.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace trefoil {

// Columns [first, first + count) of the processing order, for the kLanes rows that start at `row` of a panel (gptq.h).
struct SweepBlock {
  int64_t first;
  int64_t count;
  int64_t row;
  int64_t cols;
  int64_t panel_rows;
  int64_t group_size;
  const int64_t* order;  // [cols]
  const float* pivots;   // [cols] D, processing order
  const float* spread;   // [cols, cols] N, or -U_ik / U_ii with a mask
  const float* target;   // [cols, panel_rows]
  const float* mask;     // the same, or null
  const float* scale;    // [cols / group_size, panel_rows]
  const float* carried;  // [count, panel_rows] what earlier blocks contribute
  float code_low;        // lanes::CodeRange
  float code_high;
  float* code;       // [cols, panel_rows] out
  float* error;      // [cols, panel_rows] out
  float* pending;    // [cols, panel_rows] out, processing order: errors to spread to later blocks
  float* objective;  // [panel_rows] out, sum over the block's columns of D_j (aim_j - q_j)^2
  float* scratch;    // [count, kLanes]
};

// The scale of one group of kLanes rows with the least sum_j weight[j] (value[j] - q_j s)^2, q_j = clamp-round(value[j] / s),
// among s = bf16(base * factor). The first of equal ones.
struct GridSearch {
  int64_t group_size;
  const float* value;    // [group_size, kLanes]
  const float* weight;   // [group_size]
  const float* base;     // [kLanes], not zero
  const float* factors;  // [num_factors]
  int64_t num_factors;
  float code_low;
  float code_high;
  float* best;  // [kLanes] out
};

struct LaneKernels {
  void (*sweep_block)(const SweepBlock& block);
  void (*search_grid)(const GridSearch& search);
};

// Best first; each entry returns its table.
LaneKernels lane_kernels_avx512();
LaneKernels lane_kernels_avx2();
LaneKernels lane_kernels_scalar();
constexpr Impl<LaneKernels()> kLaneKernels[] = {
    {Isa::kAvx512, lane_kernels_avx512},
    {Isa::kAvx2, lane_kernels_avx2},
    {Isa::kScalar, lane_kernels_scalar},
};

}  // namespace trefoil
