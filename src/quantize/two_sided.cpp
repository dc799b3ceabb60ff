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
#include "quantize/refine.h"
#include "quantize/scales.h"

namespace trefoil {
namespace {

constexpr int64_t kMaxPanels = 64;           // a panel reads all of N once; more panels couple rows more finely
constexpr double kWorthAnotherRound = 1e-4;  // relative fall of the objective below which refinement stops

// Rows of a row-major matrix in another order.
std::vector<float> gather_rows(std::span<const float> from, std::span<const int64_t> order, int64_t cols) {
  std::vector<float> to(from.size());
  for (size_t i = 0; i < order.size(); ++i)
    std::copy_n(from.begin() + order[i] * cols, cols, to.begin() + static_cast<int64_t>(i) * cols);
  return to;
}

// One panel's arrays in the layout of gptq.h, [cols, rows].
struct Panel {
  int64_t first = 0, count = 0, rows = 0;  // rows: count rounded up to lanes
  std::vector<float> target, scale, code, error;
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
    const std::span<const float> given = input_.target.empty() ? input_.weight : input_.target;
    target_ = gather_rows(given, metric_.order, cols_);
    find_scales(given);
    codes_.resize(target_.size());
    error_.resize(target_.size());
    sweep();
    objective_ = objective();
    const double before = objective_;
    int kept = 0;
    if (prepared_.fallback != Fallback::kIdentity) kept = refine();
    return result(given, before, kept);
  }

 private:
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

  Panel make_panel(int64_t first) const {
    Panel panel;
    panel.first = first;
    panel.count = std::min(panel_rows_, rows_ - first);
    panel.rows = round_up(panel.count, lanes::kLanes);
    const auto size = static_cast<size_t>(cols_ * panel.rows);
    panel.target.assign(size, 0.0f);
    panel.code.assign(size, 0.0f);
    panel.error.assign(size, 0.0f);
    panel.scale.assign(static_cast<size_t>(groups_ * panel.rows), 1.0f);
    for (int64_t r = 0; r < panel.count; ++r) {
      for (int64_t g = 0; g < groups_; ++g)
        panel.scale[static_cast<size_t>(g * panel.rows + r)] = scale_[static_cast<size_t>((first + r) * groups_ + g)];
    }
    return panel;
  }

  // values: [panel.count, cols] row-major into [cols, panel.rows].
  void load(const Panel& panel, const float* values, std::vector<float>& to) const {
    for (int64_t r = 0; r < panel.count; ++r) {
      for (int64_t col = 0; col < cols_; ++col) to[static_cast<size_t>(col * panel.rows + r)] = values[r * cols_ + col];
    }
  }

  // First pass: every panel against what the panels before it left.
  void sweep() {
    std::vector<float> aim = target_;
    for (int64_t first = 0; first < rows_; first += panel_rows_) {
      Panel panel = make_panel(first);
      load(panel, aim.data() + first * cols_, panel.target);
      const SweepPanel view{cols_,   panel.rows,         input_.group_size, input_.num_bits,   panel.target.data(),
                            nullptr, panel.scale.data(), panel.code.data(), panel.error.data()};
      if (options_.gptq && prepared_.fallback != Fallback::kIdentity) {
        gptq_sweep(view, prepared_, options_.block_size);
      } else {
        round_to_nearest(view);
      }
      for (int64_t r = 0; r < panel.count; ++r) {
        for (int64_t col = 0; col < cols_; ++col) set_code(panel, r, col);
      }
      if (!metric_.spread.empty()) spread_errors(panel, aim);
    }
  }

  void set_code(const Panel& panel, int64_t r, int64_t col) {
    const size_t to = at(panel.first + r, col);
    codes_[to] = panel.code[static_cast<size_t>(col * panel.rows + r)];
    error_[to] = target_[to] - lanes::dequantize(codes_[to], scale_of(panel.first + r, col));
  }

  float scale_of(int64_t row, int64_t col) const {
    return scale_[static_cast<size_t>(row * groups_ + col / input_.group_size)];
  }

  // aim_k += spread_ik (aim_i - Q_i) for the panel's rows i in turn and every k after i.
  void spread_errors(const Panel& panel, std::vector<float>& aim) const {
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

  // to [count, cols] = values [count, cols] times the damped Hessian.
  void times_hessian(const float* values, int64_t count, float* to) const {
    gemm(Transpose::kNo, Transpose::kNo, count, cols_, cols_, 1.0f, values, cols_, prepared_.hessian.data(), cols_,
         0.0f, to, cols_);
    for (int64_t col = 0; col < cols_; ++col) {
      const float added = prepared_.damped_diagonal[static_cast<size_t>(col)] -
                          prepared_.hessian[static_cast<size_t>(col * cols_ + col)];
      for (int64_t r = 0; r < count; ++r) to[r * cols_ + col] += added * values[r * cols_ + col];
    }
  }

  // tr(G E H_damped E^T): f32 products, f64 sum.
  double weigh(const std::vector<float>& error) const {
    if (prepared_.hessian.empty() || rows_ == 0) return 0;
    std::vector<float> left(error.size()), right(error.size());
    gemm(Transpose::kNo, Transpose::kNo, rows_, cols_, rows_, 1.0f, metric_.metric.data(), rows_, error.data(), cols_,
         0.0f, left.data(), cols_);
    times_hessian(error.data(), rows_, right.data());
    return std::transform_reduce(left.begin(), left.end(), right.begin(), 0.0, std::plus<>(),
                                 [](float a, float b) { return static_cast<double>(a) * static_cast<double>(b); });
  }

  double objective() const { return weigh(error_); }

  int refine() {
    pull_.resize(error_.size());
    int kept = 0;
    for (int round = 0; round < options_.refine_rounds; ++round) {
      gemm(Transpose::kNo, Transpose::kNo, rows_, cols_, rows_, 1.0f, metric_.metric.data(), rows_, error_.data(),
           cols_, 0.0f, pull_.data(), cols_);
      double fall = 0;
      for (int64_t first = 0; first < rows_; first += panel_rows_) fall += refine_panel(first);
      if (fall > 0) kept = round + 1;
      const bool worth = fall > kWorthAnotherRound * objective_;
      objective_ -= fall;
      if (!worth) break;
    }
    objective_ = objective();
    return kept;
  }

  // Improves the panel's rows with all others fixed; returns by how much the objective fell.
  double refine_panel(int64_t first) {
    Panel panel = make_panel(first);
    std::vector<float> wanted(static_cast<size_t>(panel.count * cols_));  // the panel's error against its best target
    for (int64_t r = 0; r < panel.count; ++r) {
      const float inverse = 1.0f / metric_at(first + r, first + r);
      for (int64_t col = 0; col < cols_; ++col) wanted[at(r, col)] = pull_[at(first + r, col)] * inverse;
    }
    load(panel, wanted.data(), panel.error);
    load(panel, codes_.data() + first * cols_, panel.code);
    for (int64_t r = 0; r < panel.count; ++r) {
      for (int64_t col = 0; col < cols_; ++col) {
        const auto to = static_cast<size_t>(col * panel.rows + r);
        panel.target[to] = panel.error[to] + lanes::dequantize(panel.code[to], scale_of(first + r, col));
      }
    }
    const RefinePanel view{cols_,
                           panel.rows,
                           input_.group_size,
                           input_.num_bits,
                           panel.target.data(),
                           panel.scale.data(),
                           panel.code.data(),
                           panel.error.data()};
    refine_round(view, prepared_, options_);
    return accept_rows(panel);
  }

  // Row by row, what lowers the objective given the rows accepted before it. F(E - D) - F(E) for a change D of row r
  // is -2 (G E)_r H D^T + G_rr D H D^T.
  double accept_rows(const Panel& panel) {
    std::vector<float> change(static_cast<size_t>(panel.count * cols_)), through(change.size());
    for (int64_t r = 0; r < panel.count; ++r) {
      for (int64_t col = 0; col < cols_; ++col) {
        const float now =
            lanes::dequantize(panel.code[static_cast<size_t>(col * panel.rows + r)], new_scale(panel, r, col));
        change[at(r, col)] = now - (target_[at(panel.first + r, col)] - error_[at(panel.first + r, col)]);
      }
    }
    times_hessian(change.data(), panel.count, through.data());
    double fall = 0;
    for (int64_t r = 0; r < panel.count; ++r) {
      const int64_t row = panel.first + r;
      double first_order = 0, second_order = 0;
      for (int64_t col = 0; col < cols_; ++col) {
        first_order += static_cast<double>(pull_[at(row, col)]) * static_cast<double>(through[at(r, col)]);
        second_order += static_cast<double>(change[at(r, col)]) * static_cast<double>(through[at(r, col)]);
      }
      const double gain = 2 * first_order - static_cast<double>(metric_at(row, row)) * second_order;
      if (!(gain > 0)) {
        std::fill_n(change.begin() + r * cols_, cols_, 0.0f);
        continue;
      }
      fall += gain;
      take_row(panel, r);
      for (int64_t i = panel.first; i < panel.first + panel.count; ++i) {
        const float share = metric_at(i, row);
        for (int64_t col = 0; col < cols_; ++col) pull_[at(i, col)] -= share * change[at(r, col)];
      }
    }
    update_pull_outside(panel, change);
    return fall;
  }

  float new_scale(const Panel& panel, int64_t r, int64_t col) const {
    return panel.scale[static_cast<size_t>(col / input_.group_size * panel.rows + r)];
  }

  void take_row(const Panel& panel, int64_t r) {
    for (int64_t g = 0; g < groups_; ++g)
      scale_[static_cast<size_t>((panel.first + r) * groups_ + g)] =
          panel.scale[static_cast<size_t>(g * panel.rows + r)];
    for (int64_t col = 0; col < cols_; ++col) set_code(panel, r, col);
  }

  // pull -= G[:, panel] change for the rows outside the panel.
  void update_pull_outside(const Panel& panel, const std::vector<float>& change) {
    const auto update = [&](int64_t begin, int64_t end) {
      if (begin == end) return;
      gemm(Transpose::kNo, Transpose::kNo, end - begin, cols_, panel.count, -1.0f,
           metric_.metric.data() + begin * rows_ + panel.first, rows_, change.data(), cols_, 1.0f,
           pull_.data() + begin * cols_, cols_);
    };
    update(0, panel.first);
    update(panel.first + panel.count, rows_);
  }

  SolveResult result(std::span<const float> given, double before, int kept) const {
    SolveResult result;
    result.q = quantized();
    result.damping_frac_used = prepared_.damping_frac_used;
    result.fallback = prepared_.fallback;
    result.fallback_reason = prepared_.fallback_reason;
    result.dead_columns = prepared_.dead_columns;
    result.refine_rounds_kept = kept;
    result.objective_before_refine = before;
    result.objective = objective_;
    const double energy = weigh(gather_rows(given, metric_.order, cols_));
    result.output_error = energy > 0 ? objective_ / energy : 0;
    measure_errors(input_, prepared_, result);
    return result;
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
  double objective_ = 0;
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
