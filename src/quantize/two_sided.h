// The two-sided solve: quantization errors that the layers behind a Linear cannot see cost nothing, so both sides of
// the error are weighed, and rows make up for each other as columns do in GPTQ.
//
//   minimise  tr(G E H E^T),   E = W* - Q     H [cols, cols] moments of the inputs (solve.h)
//                                             G [rows, rows] metric of the outputs: an output error y costs y^T G y
//
// For w2 of a routed expert G = D U^T U D with U the routed_expert_up_proj behind it and D the diagonal of
// routed_expert_norm's weight: exact up to the norm's denominator, which the token weights in H carry.
//
// Method: the rows are taken in panels, in descending order of G_rr. A panel is solved by the one-sided sweep (gptq.h)
// against a target that makes up for the errors of the panels before it,
//   X_k <- X_k - (U_ik / U_ii) (X_i - Q_i)  for k after i,   G^-1 = U^T U,
// which is GPTQ's update with rows in the place of columns. Refinement then improves one panel at a time with the others
// fixed: the best target of row r is Q_r + (G E)_r / G_rr, and a row's change is kept only if tr(G E H E^T) falls.
// With G = I this is solve() itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/solve.h"

namespace trefoil {

// A metric made ready once and used for every Linear that shares it (w2 of all experts of a layer).
struct OutputMetric {
  int64_t rows = 0;
  std::vector<int64_t> order;  // [rows] row taken at each step
  std::vector<float> metric;   // [rows, rows] G + damping, in processing order
  std::vector<float> spread;  // [rows, rows] -U_ik / U_ii for k > i, processing order; empty: G could not be factorized
};

// metric: [rows, rows], symmetric, positive semidefinite. dampening_frac of its mean diagonal is added to the diagonal.
// Error(kCorrupt) when an entry is not finite.
OutputMetric prepare_output_metric(std::span<const float> metric, int64_t rows, double dampening_frac);

// As solve(), for the objective above. metric.rows == input.rows; the zero mask is not available (kInvalidArgument).
// SolveResult::loss stays the one-sided tr(E H E^T), which may rise; output_error says what fell.
SolveResult solve_two_sided(const SolveInput& input, const PreparedHessian& prepared, const OutputMetric& metric,
                            const SolveOptions& options);

}  // namespace trefoil
