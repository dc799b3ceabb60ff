// From one Linear and the Hessian of its inputs to integer codes and group scales. Pure mathematics: no files, no
// model.
//
//   minimise  tr((W* - Q) H (W* - Q)^T)   over Q[r, j] = bf16(q[r, j] * s[r, j / group_size]),  q integer, s bf16
//
//   W   weight, what the checkpoint holds      W*  target, W or the mismatch target (hessian.h)
//   H   hessian of the inputs, already weighted, shrunk and normalised by the caller
//
// One entry for every recipe: SolveOptions says which scale rule, whether GPTQ compensates, and whether refinement
// follows. The presets below are the recipes the reports name. docs/quantization.md explains each step.
//
// Deterministic: the same input gives the same bits on one machine, whatever the number of threads (each call is
// single-threaded; call it for several experts at once). Sizes: rows >= 0, cols a positive multiple of group_size.
// Errors: kCorrupt when a weight, target or Hessian entry is NaN, infinite or beyond 2^60
// (the caller prefixes layer and expert); kInvalidArgument when sizes or options contradict each other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quantize/phase_times.h"
#include "quantize/quantized_matrix.h"

namespace trefoil {

enum class ScaleRule {
  kMinMax,  // bf16(absmax / ((2^bits - 1) / 2)), in bf16 arithmetic, before anything else: what llm-compressor 0.12
            // does
  kSearch,  // least squared error, weighted by the (damped) diagonal of H
};

// Integer codes reach one step further down than up (-4..3); a negative scale puts that step on the positive side.
enum class ScaleSign { kAny, kPositive };

struct SolveOptions {
  ScaleRule scale_rule = ScaleRule::kSearch;
  ScaleSign scale_sign = ScaleSign::kAny;
  bool weighted_search = true;  // kSearch: weigh columns by diag(H) + damping; false: plain squared error
  double search_low = 0.45;     // kSearch: candidates from search_low to search_high times absmax / ((2^bits - 1) / 2)
  double search_high = 1.25;
  int search_steps = 80;     // grid intervals between them, each candidate rounded to bf16; then least-squares polish
  bool gptq = true;          // false: round to nearest
  bool static_order = true;  // process columns by descending diag(H), ties by index (act order "static")
  bool zero_mask = false;    // as published: zero weights are not compensated when >= 5 % are, dead columns become zero
  double dampening_frac = 0.01;       // of the mean diagonal
  bool dead_diagonal_is_one = false;  // as published: H_jj = 1 for dead columns before the mean is taken
  bool damping_ladder = true;         // false: identity at the first failed factorization, as published
  int64_t block_size = 128;           // columns between two matrix products of the sweep; changes rounding only
  int refine_rounds = 0;              // passes over all groups: (pair search, then scale update and code descent)
  int refine_inner = 2;               // repetitions of the last two while a group's gradient is at hand
  int refine_search_steps = 17;       // scales tried by the pair search, in each sign; 0: no search
  double refine_search_span = 0.25;   // they lie between exp(-span) and exp(span) times the current scale
};

SolveOptions rtn_options();                    // stock scales, round to nearest
SolveOptions rtn_mse_options(ScaleSign sign);  // plain squared-error scales, round to nearest: what identity H gives
SolveOptions stock_options(bool zero_mask);    // llm-compressor 0.12.0.1
SolveOptions trefoil_options(double dampening_frac, ScaleSign sign = ScaleSign::kAny);

// How far down the declared ladder the solve had to go. Each step is tried only when the one before fails.
enum class Fallback {
  kNone,
  kDoublePrecision,  // the f32 factorization failed, f64 succeeded
  kMoreDamping,      // damping was multiplied by 10, 100 or 1000
  kIdentity,         // no factorization, or H is zero (no tokens): H = I, i.e. round to nearest with plain scales
};
const char* to_string(Fallback fallback);  // "none", "double-precision", "more-damping", "identity"

// A Hessian made ready once and used for every Linear that shares it (w1 and w3). Refers to `hessian`, which must
// outlive it.
struct PreparedHessian {
  int64_t cols = 0;
  std::span<const float> hessian;      // [cols, cols] as given
  std::vector<int64_t> order;          // [cols] column processed at each step
  std::vector<float> damped_diagonal;  // [cols] diag of the damped Hessian, original order; all ones under kIdentity
  std::vector<float> unit_upper;       // [cols, cols] N, with H_damped[order][order] = N D N^T, N unit upper triangular
  std::vector<float> compensation;     // [cols, cols] U_ik / U_ii of gptq.md, only for zero_mask
  std::vector<float> pivots;           // [cols] D
  double damping = 0;                  // what was added to the diagonal
  double damping_frac_used = 0;
  int64_t dead_columns = 0;
  Fallback fallback = Fallback::kNone;
  std::string fallback_reason;  // empty under kNone
};

// hessian: [cols, cols], symmetric.
PreparedHessian prepare_hessian(std::span<const float> hessian, int64_t cols, const SolveOptions& options);

struct SolveInput {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t group_size = 64;
  int num_bits = 3;
  std::span<const float> weight;  // [rows, cols], exact bf16 values
  std::span<const float> target;  // [rows, cols], or empty for the weight itself
};

struct SolveResult {
  QuantizedMatrix q;
  double loss = 0;            // tr((W* - Q) H (W* - Q)^T) with the Hessian as given
  double relative_error = 0;  // loss / tr(W* H W*^T); 0 when both are 0
  double weight_error = 0;    // |W - Q|^2 / |W|^2, plain; 0 when W is 0
  double damping_frac_used = 0;
  Fallback fallback = Fallback::kNone;
  std::string fallback_reason;
  int64_t dead_columns = 0;
  bool zero_mask_active = false;
  int refine_rounds_kept = 0;          // rounds after which the objective of some row was lower
  double objective_before_refine = 0;  // tr(E (H + damping) E^T) after GPTQ; 0 without refinement
  double objective = 0;                // the same for the result
  double output_error = 0;             // two-sided only: tr(G E H E^T) / tr(G W* H W*^T), both damped
  PhaseTimes times;                    // scales, sweep, refine, losses
};

SolveResult solve(const SolveInput& input, const PreparedHessian& prepared, const SolveOptions& options);

// What every solve checks and reports, shared with two_sided.h: Error as above; relative_error and weight_error of
// result.q, given its loss and that of an all-zero weight.
void check_solve_input(const SolveInput& input, const PreparedHessian& prepared, const SolveOptions& options);
void report_errors(const SolveInput& input, double loss, double energy, SolveResult& result);

// The arithmetic of row_losses on `rows` rows.
inline double loss_flops(int64_t rows, int64_t cols) {
  return product_flops(rows, cols, cols) / 2;
}

// Weights of the scale search: the damped diagonal divided by its largest entry, so that tiny or huge activations cannot
// leave f32; all ones when not `weighted`.
std::vector<float> search_weights(const PreparedHessian& prepared, bool weighted);

// Both steps for a single Linear. hessian: [cols, cols]; empty means none was collected (identity, reported as such).
SolveResult solve(const SolveInput& input, std::span<const float> hessian, const SolveOptions& options);

}  // namespace trefoil
