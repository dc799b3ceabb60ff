// The GPTQ sweep: columns are rounded one after another, and what each one gets wrong is made up for by those still to
// come.
//
// With H_damped = N D N^T in processing order, N unit upper triangular, D > 0 diagonal, the loss of a row is
//   e H e^T = sum_j D_j (a_j - Q_j)^2,   a_j = w_j + sum_{i<j} (w_i - Q_i) N_ij        (LDLQ, arXiv 2307.13304, section
//   3)
// so rounding a_j in turn is nearest plane. It is GPTQ (arXiv 2210.17323) without the inverse: w_k -= e_j U_jk / U_jj
// gives the same a_k, because U = D^(-1/2) N^-1. The published zero mask breaks that identity and needs U itself:
//   a_k = w_k - M_k sum_{i<k} (a_i - Q_i) U_ik / U_ii
//
// Panels: [cols, panel_rows] f32, transposed (lanes.h), columns in original order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/solve.h"

namespace trefoil {

struct SweepPanel {
  int64_t cols = 0;
  int64_t panel_rows = 0;  // multiple of lanes::kLanes
  int64_t group_size = 0;
  int num_bits = 0;
  const float* target = nullptr;  // [cols, panel_rows]
  const float* mask = nullptr;    // [cols, panel_rows], 0 or 1, or null; selects the U form
  const float* scale = nullptr;   // [cols / group_size, panel_rows], not zero
  float* code = nullptr;          // [cols, panel_rows] out, integers
  float* error = nullptr;         // [cols, panel_rows] out, target - dequantized
};

// With compensation. block_size columns share one matrix product; any value gives the same result up to rounding.
// Returns e H_damped e^T of every row, e its error: what each step misses of its aim, weighted by the pivots, is that
// form's square completed column by column. With a mask, whose aims are not those of the form, it means nothing.
std::vector<double> gptq_sweep(const SweepPanel& panel, const PreparedHessian& prepared, int64_t block_size);

// Without: round to nearest. prepared is not needed.
void round_to_nearest(const SweepPanel& panel);

}  // namespace trefoil
