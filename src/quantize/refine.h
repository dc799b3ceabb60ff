// Refinement: with everything else fixed, move one group's scale or one code to where the loss is lower. Every move is
// accepted only if it lowers the row's objective e (H + damping) e^T, so the objective never rises.
//
//   pair    search a new scale together with new codes: nearest plane on the group for a grid of scales refine_group.h
//   scale   s += (z . T_g) / (z H_gg z^T), rounded to bf16                            (arXiv 2602.02126, stage 2)
//   code    q_j <- clamp-round((Q_j + T_j / H_jj) / s), cyclic                        (QuantEase, arXiv 2309.01885)
//   with T = E H_damped, z the codes of group g and H_gg its block of H_damped
//
// T is formed afresh for every kGroupsAtOnce groups by one large matrix product, and what a group changed is carried on to
// those of them behind it by a small one: no error builds up. Panels as in gptq.h.
#pragma once

#include <cstdint>
#include <vector>

#include "quantize/solve.h"

namespace trefoil {

struct RefinePanel {
  int64_t cols = 0;
  int64_t panel_rows = 0;  // multiple of lanes::kLanes
  int64_t group_size = 0;
  int num_bits = 0;
  const float* target = nullptr;  // [cols, panel_rows]
  float* scale = nullptr;         // [cols / group_size, panel_rows] in and out
  float* code = nullptr;          // [cols, panel_rows] in and out
  float* error = nullptr;         // [cols, panel_rows] in and out
};

// One pass over all groups. Returns by how much each row's objective fell, [panel_rows], as tracked move by move.
std::vector<double> refine_round(const RefinePanel& panel, const PreparedHessian& prepared,
                                 const SolveOptions& options);

// The operations of one round: gradients, and nearest plane for every scale tried.
double refine_flops(const RefinePanel& panel, const SolveOptions& options);

}  // namespace trefoil
