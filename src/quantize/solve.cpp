#include "quantize/solve.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "quantize/gptq.h"
#include "quantize/hessian.h"
#include "quantize/lanes.h"
#include "quantize/panel.h"
#include "quantize/refine.h"
#include "quantize/scales.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

constexpr int64_t kPanelRows = 256;          // rows solved together: one stream over N and H serves them all
constexpr float kLargestWeight = 0x1p60f;    // squares of anything larger leave f32
constexpr double kZeroMaskThreshold = 0.05;  // llm-compressor 0.12.0.1: the mask is on from this share of zeros
constexpr float kMaskedBelow = 1e-8f;        // and covers weights up to this magnitude
constexpr double kWorthAnotherRound = 1e-5;  // relative fall of a panel's objective below which refinement stops

void check_values(std::span<const float> values, int64_t cols, const char* what) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::abs(values[i]) <= kLargestWeight)) {
      const auto index = static_cast<int64_t>(i);
      fail(ErrorCode::kCorrupt, "{} [{}, {}] is {}, expected a finite number below 2^60", what, index / cols,
           index % cols, values[i]);
    }
  }
}

}  // namespace

void check_solve_input(const SolveInput& input, const PreparedHessian& prepared, const SolveOptions& options) {
  if (input.rows < 0 || input.cols <= 0 || input.group_size <= 0 || input.cols % input.group_size != 0) {
    fail(ErrorCode::kInvalidArgument, "matrix [{}, {}] cannot be cut into groups of {}", input.rows, input.cols,
         input.group_size);
  }
  if (input.num_bits < 2 || input.num_bits > 8)
    fail(ErrorCode::kInvalidArgument, "{} bits, expected 2 to 8", input.num_bits);
  if (options.block_size <= 0 || options.search_steps <= 0 || !(options.search_low > 0) ||
      !(options.search_high >= options.search_low)) {
    fail(ErrorCode::kInvalidArgument, "block_size, search_steps and the search range must be positive");
  }
  const auto count = static_cast<size_t>(input.rows * input.cols);
  TREFOIL_CHECK(input.weight.size() == count && (input.target.empty() || input.target.size() == count));
  TREFOIL_CHECK(prepared.cols == input.cols);
  check_values(input.weight, input.cols, "weight");
  check_values(input.target, input.cols, "target weight");
}

std::vector<float> search_weights(const PreparedHessian& prepared, bool weighted) {
  std::vector<float> weights = prepared.damped_diagonal;
  const float largest = *std::max_element(weights.begin(), weights.end());
  for (float& weight : weights) weight = weighted ? std::max(weight / largest, 1e-20f) : 1.0f;
  return weights;
}

namespace {

// What the published recipe changes in the weights before its sweep.
struct ZeroMask {
  bool active = false;      // enough zeros to switch the mask on
  std::vector<float> mask;  // [rows, cols], when the option is on: the sweep then runs in the U form
};

ZeroMask apply_zero_mask(const PreparedHessian& prepared, int64_t cols, std::vector<float>& weight) {
  ZeroMask result;
  const auto zeros = std::count(weight.begin(), weight.end(), 0.0f);
  result.active =
      !weight.empty() && static_cast<double>(zeros) >= kZeroMaskThreshold * static_cast<double>(weight.size());
  result.mask.assign(weight.size(), 1.0f);
  if (result.active) {
    for (size_t i = 0; i < weight.size(); ++i) result.mask[i] = std::abs(weight[i]) > kMaskedBelow ? 1.0f : 0.0f;
  }
  for (int64_t j = 0; j < cols && !prepared.hessian.empty(); ++j) {
    if (prepared.hessian[static_cast<size_t>(j * cols + j)] != 0.0f) continue;
    for (size_t i = static_cast<size_t>(j); i < weight.size(); i += static_cast<size_t>(cols)) weight[i] = 0.0f;
  }
  return result;
}

struct Loss {
  double plain = 0;   // e H e^T
  double damped = 0;  // e H_damped e^T
};

class Solver {
 public:
  Solver(const SolveInput& input, const PreparedHessian& prepared, const SolveOptions& options)
      : input_(input), prepared_(prepared), options_(options) {}

  SolveResult run() {
    std::vector<float> target(input_.target.empty() ? input_.weight.begin() : input_.target.begin(),
                              input_.target.empty() ? input_.weight.end() : input_.target.end());
    if (options_.zero_mask) zero_mask_ = apply_zero_mask(prepared_, input_.cols, target);
    start_result(target);
    for (int64_t first = 0; first < input_.rows; first += kPanelRows) solve_panel(target, first);
    report_errors(input_, loss_, energy_, result_);
    return std::move(result_);
  }

 private:
  bool compensates() const { return options_.gptq && prepared_.fallback != Fallback::kIdentity; }
  int64_t groups() const { return input_.cols / input_.group_size; }

  void start_result(std::span<const float> target) {
    result_.q.rows = input_.rows;
    result_.q.cols = input_.cols;
    result_.q.group_size = input_.group_size;
    result_.q.num_bits = input_.num_bits;
    result_.q.codes.resize(target.size());
    const PhaseTimer timer(result_.times, Phase::kScales);
    if (options_.scale_rule == ScaleRule::kMinMax) {
      result_.q.scale = min_max_scales(input_.weight, input_.rows, input_.cols, input_.group_size, input_.num_bits);
    } else {
      result_.q.scale = search_scales(target, search_weights(prepared_, options_.weighted_search), input_.rows,
                                      input_.cols, input_.group_size, input_.num_bits, options_);
    }
    result_.damping_frac_used = prepared_.damping_frac_used;
    result_.fallback = prepared_.fallback;
    result_.fallback_reason = prepared_.fallback_reason;
    result_.dead_columns = prepared_.dead_columns;
    result_.zero_mask_active = zero_mask_.active && compensates();
  }

  void solve_panel(std::span<const float> target, int64_t first) {
    Panel& panel = panel_;
    panel.start(first, std::min(kPanelRows, input_.rows - first), input_.cols, groups());
    const int64_t cols = input_.cols;
    rows_to_panel(target.data() + first * cols, cols, panel.count, panel.rows, 0.0f, panel.target.data());
    if (!zero_mask_.mask.empty()) {
      panel.mask.resize(panel.target.size());
      rows_to_panel(zero_mask_.mask.data() + first * cols, cols, panel.count, panel.rows, 1.0f, panel.mask.data());
    }
    load_scales(panel);
    SweepPanel sweep{input_.cols,        panel.rows,          input_.group_size,
                     input_.num_bits,    panel.target.data(), panel.mask.empty() ? nullptr : panel.mask.data(),
                     panel.scale.data(), panel.code.data(),   panel.error.data()};
    const std::vector<double> objective = round(sweep);
    store(panel, {});
    std::vector<Loss> losses = is_told_by_sweep() ? losses_from(panel, objective) : measure(panel, panel.error);
    if (compensates() && options_.refine_rounds > 0) losses = refine(panel, std::move(losses));
    for (const Loss& loss : losses) {
      loss_ += loss.plain;
      result_.objective += loss.damped;
    }
    for (const Loss& loss : measure(panel, panel.target)) energy_ += loss.plain;
  }

  // Returns what gptq_sweep() does.
  std::vector<double> round(const SweepPanel& sweep) {
    PhaseTimer timer(result_.times, Phase::kSweep);
    if (!compensates()) {
      round_to_nearest(sweep);
      return {};
    }
    timer.count(product_flops(sweep.panel_rows, input_.cols, input_.cols) / 2);
    return gptq_sweep(sweep, prepared_, options_.block_size);
  }

  // Whether the sweep's own sum is the loss. Refinement compares losses before and after, so it wants both measured alike;
  // the ones on a dead diagonal may outweigh the rest, which taking them away would then leave as rounding.
  bool is_told_by_sweep() const {
    return compensates() && options_.refine_rounds == 0 && zero_mask_.mask.empty() && prepared_.dead_columns == 0;
  }

  void load_scales(Panel& panel) const {
    panel.scale.assign(static_cast<size_t>(groups() * panel.rows), kZeroGroupScale);
    for (int64_t row = 0; row < panel.count; ++row) {
      for (int64_t g = 0; g < groups(); ++g) {
        panel.scale[static_cast<size_t>(g * panel.rows + row)] =
            bf16_to_f32(result_.q.scale[static_cast<size_t>((panel.first + row) * groups() + g)]);
      }
    }
  }

  // Codes and scales of the panel into the result, all rows or those with take[row].
  void store(const Panel& panel, const std::vector<bool>& take) {
    for (int64_t row = 0; row < panel.count; ++row) {
      if (!take.empty() && !take[static_cast<size_t>(row)]) continue;
      for (int64_t col = 0; col < input_.cols; ++col) {
        result_.q.codes[static_cast<size_t>((panel.first + row) * input_.cols + col)] =
            static_cast<int8_t>(panel.code[static_cast<size_t>(col * panel.rows + row)]);
      }
      for (int64_t g = 0; g < groups(); ++g) {
        result_.q.scale[static_cast<size_t>((panel.first + row) * groups() + g)] =
            f32_to_bf16(panel.scale[static_cast<size_t>(g * panel.rows + row)]);
      }
    }
  }

  // The losses of a panel's rows if `error` [cols, panel.rows] were what is missed.
  std::vector<Loss> measure(const Panel& panel, std::span<const float> error) {
    std::vector<Loss> losses(static_cast<size_t>(panel.count));
    if (prepared_.hessian.empty()) return losses;
    const bool is_zero = prepared_.dead_columns == input_.cols;  // of an expert without tokens: nothing to multiply
    const PhaseTimer timer(result_.times, Phase::kLosses, is_zero ? 0 : loss_flops(panel.rows, input_.cols));
    const std::vector<double> plain = is_zero ? std::vector<double>(static_cast<size_t>(panel.rows), 0.0)
                                              : row_losses(error, prepared_.hessian, panel.rows, input_.cols);
    const std::vector<double> added = damping_losses(panel, error);
    for (size_t row = 0; row < losses.size(); ++row) losses[row] = {plain[row], plain[row] + added[row]};
    return losses;
  }

  // The same of panel.error, given its damped losses.
  std::vector<Loss> losses_from(const Panel& panel, std::span<const double> damped) {
    const PhaseTimer timer(result_.times, Phase::kLosses);
    const std::vector<double> added = damping_losses(panel, panel.error);
    std::vector<Loss> losses(static_cast<size_t>(panel.count));
    for (size_t row = 0; row < losses.size(); ++row)
      losses[row] = {std::max(damped[row] - added[row], 0.0), damped[row]};
    return losses;
  }

  // The part of the damping in the damped loss of each row.
  std::vector<double> damping_losses(const Panel& panel, std::span<const float> error) const {
    std::vector<double> added(static_cast<size_t>(panel.rows), 0.0);
    for (int64_t col = 0; col < input_.cols; ++col) {
      const double damping = static_cast<double>(prepared_.damped_diagonal[static_cast<size_t>(col)]) -
                             static_cast<double>(prepared_.hessian[static_cast<size_t>(col * input_.cols + col)]);
      const float* e = error.data() + col * panel.rows;
      for (size_t row = 0; row < added.size(); ++row)
        added[row] += damping * static_cast<double>(e[row]) * static_cast<double>(e[row]);
    }
    return added;
  }

  // Refines and keeps, row by row, what the exact objective says is better.
  std::vector<Loss> refine(Panel& panel, std::vector<Loss> before) {
    const RefinePanel refined{input_.cols,         panel.rows,         input_.group_size, input_.num_bits,
                              panel.target.data(), panel.scale.data(), panel.code.data(), panel.error.data()};
    double objective = 0;
    for (const Loss& loss : before) objective += loss.damped;
    result_.objective_before_refine += objective;
    int kept = 0;
    for (int round = 0; round < options_.refine_rounds; ++round) {
      const PhaseTimer timer(result_.times, Phase::kRefine, refine_flops(refined, options_));
      const std::vector<double> gain = refine_round(refined, prepared_, options_);
      const double fall = std::accumulate(gain.begin(), gain.begin() + panel.count, 0.0);
      if (fall > 0) kept = round + 1;
      if (!(fall > kWorthAnotherRound * objective)) break;
      objective -= fall;
    }
    std::vector<Loss> after = measure(panel, panel.error);
    std::vector<bool> take(after.size());
    for (size_t row = 0; row < after.size(); ++row) {
      take[row] = after[row].damped < before[row].damped;
      if (!take[row]) after[row] = before[row];
    }
    store(panel, take);
    result_.refine_rounds_kept = std::max(result_.refine_rounds_kept, kept);
    return after;
  }

  const SolveInput& input_;
  const PreparedHessian& prepared_;
  const SolveOptions& options_;
  ZeroMask zero_mask_;
  Panel panel_;  // under work
  SolveResult result_;
  double loss_ = 0;    // tr(E H E^T)
  double energy_ = 0;  // tr(W* H W*^T)
};

}  // namespace

void report_errors(const SolveInput& input, double loss, double energy, SolveResult& result) {
  const PhaseTimer timer(result.times, Phase::kLosses);
  const std::vector<float> quantized = dequantize(result.q);
  double error = 0, weight_energy = 0;
  for (size_t i = 0; i < quantized.size(); ++i) {
    const double e = static_cast<double>(input.weight[i]) - static_cast<double>(quantized[i]);
    error += e * e;
    weight_energy += static_cast<double>(input.weight[i]) * static_cast<double>(input.weight[i]);
  }
  result.weight_error = weight_energy > 0 ? error / weight_energy : 0.0;
  result.loss = loss;
  result.relative_error = energy > 0 ? loss / energy : 0.0;
  if (!std::isfinite(result.loss) || !std::isfinite(result.weight_error))
    fail(ErrorCode::kCorrupt, "loss is {}: weights or Hessian are too large for f32", result.loss);
}

SolveOptions rtn_options() {
  SolveOptions options;
  options.scale_rule = ScaleRule::kMinMax;
  options.gptq = false;
  return options;
}

SolveOptions rtn_mse_options(ScaleSign sign) {
  SolveOptions options;
  options.scale_sign = sign;
  options.weighted_search = false;
  options.gptq = false;
  return options;
}

SolveOptions stock_options(bool zero_mask) {
  SolveOptions options;
  options.scale_rule = ScaleRule::kMinMax;
  options.zero_mask = zero_mask;
  options.dead_diagonal_is_one = true;
  options.damping_ladder = false;
  return options;
}

SolveOptions trefoil_options(double dampening_frac, ScaleSign sign) {
  SolveOptions options;
  options.scale_sign = sign;
  options.dampening_frac = dampening_frac;
  options.refine_rounds = 4;
  return options;
}

SolveResult solve(const SolveInput& input, const PreparedHessian& prepared, const SolveOptions& options) {
  check_solve_input(input, prepared, options);
  return Solver(input, prepared, options).run();
}

SolveResult solve(const SolveInput& input, std::span<const float> hessian, const SolveOptions& options) {
  return solve(input, prepare_hessian(hessian, input.cols, options), options);
}

}  // namespace trefoil
