#include "quantize/two_sided.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "quantize/gptq.h"
#include "quantize/hessian.h"
#include "quantize/lanes.h"
#include "quantize/linalg.h"
#include "quantize/panel.h"
#include "quantize/refine.h"
#include "quantize/scales.h"

namespace trefoil {
namespace {

constexpr int64_t kMaxPanels = 64;           // a panel reads all of N once; more panels couple rows more finely
constexpr int64_t kRowsTogether = 16;        // of a panel, whose changes reach those behind them by one matrix product
constexpr double kWorthAnotherRound = 1e-4;  // relative fall of the objective below which refinement stops

// Rows of a row-major matrix in another order.
std::vector<float> gather_rows(std::span<const float> from, std::span<const int64_t> order, int64_t cols) {
  std::vector<float> to(from.size());
  for (size_t i = 0; i < order.size(); ++i)
    std::copy_n(from.begin() + order[i] * cols, cols, to.begin() + static_cast<int64_t>(i) * cols);
  return to;
}

// What a change of the whole matrix by `values` costs.
struct Cost {
  double one_sided = 0;  // tr(E H E^T), undamped
  double two_sided = 0;  // tr(G E H E^T), both damped
};

class TwoSidedSolver {
 public:
  TwoSidedSolver(const SolveInput& input, const PreparedHessian& prepared, const OutputMetric& metric,
                 const SolveOptions& options)
      : input_(input),
        prepared_(prepared),
        metric_(metric),
        options_(options),
        rows_(input.rows),
        cols_(input.cols),
        groups_(input.cols / input.group_size),
        panel_rows_(std::max<int64_t>(lanes::kLanes, round_up(ceil_div(input.rows, kMaxPanels), lanes::kLanes))) {}

  SolveResult run() {
    SolveResult result;
    const std::span<const float> given = input_.target.empty() ? input_.weight : input_.target;
    target_ = gather_rows(given, metric_.order, cols_);
    {
      const PhaseTimer timer(result.times, Phase::kScales);
      find_scales(given);
    }
    for (std::vector<float>* values : {&codes_, &error_, &pull_}) values->resize(target_.size());
    {
      const PhaseTimer timer(result.times, Phase::kSweep, (h_flops() + g_flops()) / 2);
      sweep();
    }
    Cost missed = weigh(error_, result.times);
    result.objective_before_refine = missed.two_sided;
    if (prepared_.fallback != Fallback::kIdentity && options_.refine_rounds > 0) {
      result.refine_rounds_kept = refine(missed.two_sided, result.times);
      missed = weigh(error_, result.times);
    }
    const Cost all = weigh(target_, result.times);
    result.objective = missed.two_sided;
    result.output_error = all.two_sided > 0 ? missed.two_sided / all.two_sided : 0;
    result.q = quantized();
    result.damping_frac_used = prepared_.damping_frac_used;
    result.fallback = prepared_.fallback;
    result.fallback_reason = prepared_.fallback_reason;
    result.dead_columns = prepared_.dead_columns;
    report_errors(input_, missed.one_sided, all.one_sided, result);
    return result;
  }

 private:
  double h_flops() const { return product_flops(rows_, cols_, cols_); }
  double g_flops() const { return product_flops(rows_, rows_, cols_); }
  size_t at(int64_t row, int64_t col) const { return static_cast<size_t>(row * cols_ + col); }
  float metric_at(int64_t i, int64_t j) const { return metric_.metric[static_cast<size_t>(i * rows_ + j)]; }

  void find_scales(std::span<const float> given) {
    const std::vector<uint16_t> found =
        options_.scale_rule == ScaleRule::kMinMax
            ? min_max_scales(input_.weight, rows_, cols_, input_.group_size, input_.num_bits)
            : search_scales(given, search_weights(prepared_, options_.weighted_search), rows_, cols_, input_.group_size,
                            input_.num_bits, options_);
    scale_.resize(found.size());
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t g = 0; g < groups_; ++g)
        scale_[static_cast<size_t>(row * groups_ + g)] =
            bf16_to_f32(found[static_cast<size_t>(metric_.order[static_cast<size_t>(row)] * groups_ + g)]);
    }
  }

  // The next panel: its scales are set, everything else is not.
  void start_panel(int64_t first) {
    panel_.start(first, std::min(panel_rows_, rows_ - first), cols_, groups_);
    std::fill(panel_.scale.begin(), panel_.scale.end(), 1.0f);
    for (int64_t r = 0; r < panel_.count; ++r) {
      for (int64_t g = 0; g < groups_; ++g)
        panel_.scale[static_cast<size_t>(g * panel_.rows + r)] = scale_[static_cast<size_t>((first + r) * groups_ + g)];
    }
  }

  void load(const float* values, std::vector<float>& to) const {
    rows_to_panel(values, cols_, panel_.count, panel_.rows, 0.0f, to.data());
  }

  // First pass: every panel against what the panels before it left.
  void sweep() {
    std::vector<float> aim = target_;
    for (int64_t first = 0; first < rows_; first += panel_rows_) {
      start_panel(first);
      load(aim.data() + first * cols_, panel_.target);
      const SweepPanel view{cols_,   panel_.rows,         input_.group_size,  input_.num_bits,    panel_.target.data(),
                            nullptr, panel_.scale.data(), panel_.code.data(), panel_.error.data()};
      if (options_.gptq && prepared_.fallback != Fallback::kIdentity) {
        gptq_sweep(view, prepared_, options_.block_size);
      } else {
        round_to_nearest(view);
      }
      panel_to_rows(panel_.code.data(), cols_, panel_.count, panel_.rows, codes_.data() + first * cols_);
      for (int64_t row = first; row < first + panel_.count; ++row) set_error(row);
      if (!metric_.spread.empty()) spread_errors(aim);
    }
  }

  // What the codes and scales of a row miss.
  void set_error(int64_t row) {
    for (int64_t col = 0; col < cols_; ++col)
      error_[at(row, col)] = target_[at(row, col)] - lanes::dequantize(codes_[at(row, col)], scale_of(row, col));
  }

  float scale_of(int64_t row, int64_t col) const {
    return scale_[static_cast<size_t>(row * groups_ + col / input_.group_size)];
  }

  // aim_k += spread_ik (aim_i - Q_i) for the panel's rows i in turn and every k after i.
  void spread_errors(std::vector<float>& aim) const {
    const Panel& panel = panel_;
    std::vector<float> missed(static_cast<size_t>(panel.count * cols_));
    for (int64_t i = 0; i < panel.count; ++i) {
      const int64_t row = panel.first + i;
      float* e = missed.data() + i * cols_;
      for (int64_t col = 0; col < cols_; ++col)
        e[col] = aim[at(row, col)] - (target_[at(row, col)] - error_[at(row, col)]);
      for (int64_t k = row + 1; k < panel.first + panel.count; ++k) {
        const float share = metric_.spread[static_cast<size_t>(row * rows_ + k)];
        for (int64_t col = 0; col < cols_; ++col) aim[at(k, col)] += share * e[col];
      }
    }
    const int64_t next = panel.first + panel.count;
    if (next == rows_) return;
    gemm(Transpose::kYes, Transpose::kNo, rows_ - next, cols_, panel.count, 1.0f,
         metric_.spread.data() + panel.first * rows_ + next, rows_, missed.data(), cols_, 1.0f,
         aim.data() + next * cols_, cols_);
  }

  // to [count, cols] = values [count, cols] times H, undamped.
  void times_hessian(const float* values, int64_t count, float* to) const {
    gemm(Transpose::kNo, Transpose::kNo, count, cols_, cols_, 1.0f, values, cols_, prepared_.hessian.data(), cols_,
         0.0f, to, cols_);
  }

  // What damping added to the diagonal of H.
  float damping(int64_t col) const {
    return prepared_.damped_diagonal[static_cast<size_t>(col)] -
           prepared_.hessian[static_cast<size_t>(col * cols_ + col)];
  }

  // pull_ = G values.
  void set_pull(const std::vector<float>& values) {
    gemm(Transpose::kNo, Transpose::kNo, rows_, cols_, rows_, 1.0f, metric_.metric.data(), rows_, values.data(), cols_,
         0.0f, pull_.data(), cols_);
  }

  // f32 products, f64 sums; leaves G values in pull_.
  Cost weigh(const std::vector<float>& values, PhaseTimes& times) {
    Cost cost;
    if (prepared_.hessian.empty() || rows_ == 0) return cost;
    const PhaseTimer timer(times, Phase::kLosses, h_flops() + g_flops());
    set_pull(values);
    constexpr int64_t kRowsAtOnce = 512;
    std::vector<float> through(static_cast<size_t>(std::min(kRowsAtOnce, rows_) * cols_));
    for (int64_t first = 0; first < rows_; first += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, rows_ - first);
      times_hessian(values.data() + first * cols_, count, through.data());
      for (int64_t r = 0; r < count; ++r) add_row(cost, values, first + r, through.data() + r * cols_);
    }
    return cost;
  }

  // through: the row's values times H.
  void add_row(Cost& cost, const std::vector<float>& values, int64_t row, const float* through) const {
    double one = 0, two = 0;
    for (int64_t col = 0; col < cols_; ++col) {
      const double value = values[at(row, col)];
      one += value * static_cast<double>(through[col]);
      two += static_cast<double>(pull_[at(row, col)]) *
             (static_cast<double>(through[col]) + static_cast<double>(damping(col)) * value);
    }
    cost.one_sided += one;
    cost.two_sided += two;
  }

  // Returns the number of the last round that lowered the objective.
  int refine(double objective, PhaseTimes& times) {
    int kept = 0;
    for (int round = 0; round < options_.refine_rounds; ++round) {
      PhaseTimer timer(times, Phase::kRefine);
      const bool last = round + 1 == options_.refine_rounds;
      double fall = 0;
      for (int64_t first = 0; first < rows_; first += panel_rows_) {
        fall += refine_panel(first, last);
        const RefinePanel view{cols_, panel_.rows, input_.group_size, input_.num_bits};
        timer.count(refine_flops(view, options_) + product_flops(panel_.rows, cols_, cols_) +
                    product_flops(rows_ - (last ? first : 0), panel_.rows, cols_));
      }
      if (fall > 0) kept = round + 1;
      if (!(fall > kWorthAnotherRound * objective)) break;
      objective -= fall;
    }
    return kept;
  }

  // Improves the panel's rows with all others fixed; returns by how much the objective fell. In the last round nobody
  // asks again for the pull of rows up to this panel.
  double refine_panel(int64_t first, bool last_round) {
    start_panel(first);
    std::vector<float> wanted(static_cast<size_t>(panel_.count * cols_));  // the panel's error against its best target
    for (int64_t r = 0; r < panel_.count; ++r) {
      const float inverse = 1.0f / metric_at(first + r, first + r);
      for (int64_t col = 0; col < cols_; ++col) wanted[at(r, col)] = pull_[at(first + r, col)] * inverse;
    }
    load(wanted.data(), panel_.error);
    load(codes_.data() + first * cols_, panel_.code);
    for (int64_t col = 0; col < cols_; ++col) {
      const float* scale = panel_.scale.data() + col / input_.group_size * panel_.rows;
      for (int64_t r = 0; r < panel_.rows; ++r) {
        const auto to = static_cast<size_t>(col * panel_.rows + r);
        panel_.target[to] = panel_.error[to] + lanes::dequantize(panel_.code[to], scale[r]);
      }
    }
    const RefinePanel view{cols_,
                           panel_.rows,
                           input_.group_size,
                           input_.num_bits,
                           panel_.target.data(),
                           panel_.scale.data(),
                           panel_.code.data(),
                           panel_.error.data()};
    refine_round(view, prepared_, options_);
    return accept_rows(last_round);
  }

  // Row by row, what lowers the objective given the rows accepted before it. F(E - D) - F(E) for a change D of row r
  // is -2 (G E)_r H D^T + G_rr D H D^T.
  double accept_rows(bool last_round) {
    const int64_t first = panel_.first, count = panel_.count;
    std::vector<float> codes(static_cast<size_t>(count * cols_)), change(codes.size()), through(codes.size());
    panel_to_rows(panel_.code.data(), cols_, count, panel_.rows, codes.data());
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t col = 0; col < cols_; ++col) {
        const float now = lanes::dequantize(codes[at(r, col)], new_scale(r, col));
        change[at(r, col)] = now - (target_[at(first + r, col)] - error_[at(first + r, col)]);
      }
    }
    times_hessian(change.data(), count, through.data());
    std::vector<float> pull(pull_.begin() + first * cols_, pull_.begin() + (first + count) * cols_);
    double fall = 0;
    for (int64_t r = 0; r < count; ++r) {
      if (r % kRowsTogether == 0) catch_up(first, r, std::min(r + kRowsTogether, count), change, pull);
      double first_order = 0, second_order = 0;
      for (int64_t col = 0; col < cols_; ++col) {
        const double d = change[at(r, col)];
        const double damped = static_cast<double>(through[at(r, col)]) + static_cast<double>(damping(col)) * d;
        first_order += static_cast<double>(pull[at(r, col)]) * damped;
        second_order += d * damped;
      }
      const double gain = 2 * first_order - static_cast<double>(metric_at(first + r, first + r)) * second_order;
      if (!(gain > 0)) {
        std::fill_n(change.begin() + r * cols_, cols_, 0.0f);
        continue;
      }
      fall += gain;
      take_row(r, codes.data() + r * cols_);
      for (int64_t i = r + 1; i < std::min(count, round_up(r + 1, kRowsTogether)); ++i) {
        const float share = metric_at(first + i, first + r);
        for (int64_t col = 0; col < cols_; ++col) pull[at(i, col)] -= share * change[at(r, col)];
      }
    }
    const int64_t begin = last_round ? first + count : 0;
    gemm(Transpose::kNo, Transpose::kNo, rows_ - begin, cols_, count, -1.0f,
         metric_.metric.data() + begin * rows_ + first, rows_, change.data(), cols_, 1.0f, pull_.data() + begin * cols_,
         cols_);
    return fall;
  }

  // pull of the panel's rows [begin, end) after the changes of its rows before them.
  void catch_up(int64_t first, int64_t begin, int64_t end, const std::vector<float>& change,
                std::vector<float>& pull) const {
    if (begin == 0) return;
    gemm(Transpose::kNo, Transpose::kNo, end - begin, cols_, begin, -1.0f,
         metric_.metric.data() + (first + begin) * rows_ + first, rows_, change.data(), cols_, 1.0f,
         pull.data() + begin * cols_, cols_);
  }

  float new_scale(int64_t r, int64_t col) const {
    return panel_.scale[static_cast<size_t>(col / input_.group_size * panel_.rows + r)];
  }

  void take_row(int64_t r, const float* codes) {
    const int64_t row = panel_.first + r;
    for (int64_t g = 0; g < groups_; ++g)
      scale_[static_cast<size_t>(row * groups_ + g)] = panel_.scale[static_cast<size_t>(g * panel_.rows + r)];
    std::copy_n(codes, cols_, codes_.begin() + row * cols_);
    set_error(row);
  }

  QuantizedMatrix quantized() const {
    QuantizedMatrix q;
    q.rows = rows_;
    q.cols = cols_;
    q.group_size = input_.group_size;
    q.num_bits = input_.num_bits;
    q.codes.resize(codes_.size());
    q.scale.resize(scale_.size());
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t to = metric_.order[static_cast<size_t>(row)];
      for (int64_t col = 0; col < cols_; ++col) q.codes[at(to, col)] = static_cast<int8_t>(codes_[at(row, col)]);
      for (int64_t g = 0; g < groups_; ++g)
        q.scale[static_cast<size_t>(to * groups_ + g)] = f32_to_bf16(scale_[static_cast<size_t>(row * groups_ + g)]);
    }
    return q;
  }

  const SolveInput& input_;
  const PreparedHessian& prepared_;
  const OutputMetric& metric_;
  const SolveOptions& options_;
  const int64_t rows_, cols_, groups_, panel_rows_;
  // All [rows, cols] (scale: [rows, groups]), rows in processing order.
  std::vector<float> target_, codes_, scale_, error_;
  std::vector<float> pull_;  // G E
  Panel panel_;              // under work
};

}  // namespace

OutputMetric prepare_output_metric(std::span<const float> metric, int64_t rows, double dampening_frac) {
  SolveOptions options;
  options.dampening_frac = dampening_frac;
  options.zero_mask = true;  // asks for U_ik / U_ii
  const PreparedHessian prepared = prepare_hessian(metric, rows, options);
  OutputMetric result;
  result.rows = rows;
  result.order = prepared.order;
  result.spread = prepared.compensation;
  result.metric.resize(static_cast<size_t>(rows * rows));
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t from = prepared.order[static_cast<size_t>(i)];
    for (int64_t j = 0; j < rows; ++j) {
      const int64_t other = prepared.order[static_cast<size_t>(j)];
      result.metric[static_cast<size_t>(i * rows + j)] = i == j ? prepared.damped_diagonal[static_cast<size_t>(from)]
                                                                : metric[static_cast<size_t>(from * rows + other)];
    }
  }
  if (prepared.fallback == Fallback::kIdentity) {
    result.spread.clear();
    std::fill(result.metric.begin(), result.metric.end(), 0.0f);
    for (int64_t i = 0; i < rows; ++i) result.metric[static_cast<size_t>(i * rows + i)] = 1.0f;
  }
  return result;
}

SolveResult solve_two_sided(const SolveInput& input, const PreparedHessian& prepared, const OutputMetric& metric,
                            const SolveOptions& options) {
  check_solve_input(input, prepared, options);
  TREFOIL_CHECK(metric.rows == input.rows);
  if (options.zero_mask) fail(ErrorCode::kInvalidArgument, "the zero mask and the two-sided solve exclude each other");
  return TwoSidedSolver(input, prepared, metric, options).run();
}

}  // namespace trefoil
