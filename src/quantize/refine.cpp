#include "quantize/refine.h"

#include <algorithm>
#include <cmath>

#include "quantize/lanes.h"
#include "quantize/linalg.h"
#include "quantize/refine_group.h"

namespace trefoil {
namespace {

using lanes::kLanes;

constexpr int64_t kGroupsAtOnce = 8;

// Scale factors tried by the search of a group: a logarithmic grid around 1, in both signs. Those nearest to 1 come first:
// they tend to win, and what cannot beat them is given up early.
std::vector<float> search_factors(const SolveOptions& options) {
  const int steps = options.refine_search_steps;
  std::vector<double> exponents;
  for (int i = 0; i < steps; ++i)
    exponents.push_back(steps == 1 ? 0.0 : options.refine_search_span * (2.0 * i / (steps - 1) - 1.0));
  std::stable_sort(exponents.begin(), exponents.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  std::vector<float> factors;
  for (const double exponent : exponents) {
    const auto factor = static_cast<float>(std::exp(exponent));
    factors.push_back(factor);
    if (options.scale_sign == ScaleSign::kAny) factors.push_back(-factor);
  }
  return factors;
}

// The arrays of one group of kLanes rows.
class Group {
 public:
  Group(const RefinePanel& panel, const SolveOptions& options, const std::vector<float>& block) : panel_(panel) {
    const auto count = static_cast<size_t>(panel.group_size * kLanes);
    for (std::vector<float>* values : {&gradient_, &code_, &dequantized_}) values->resize(count);
    scratch_.resize(static_cast<size_t>(group_scratch_floats(panel.group_size)));
    const lanes::CodeRange range(panel.num_bits);
    state_ = {panel.group_size,
              block.data(),
              gradient_.data(),
              code_.data(),
              dequantized_.data(),
              scale_,
              gain_,
              scratch_.data(),
              range.low,
              range.high,
              options.scale_sign == ScaleSign::kPositive};
  }
  const GroupState& state() const { return state_; }
  double gain(int lane) const { return gain_[lane]; }

  // Rows [row, row + kLanes) of the group that starts at column `first`; gradient: its [group_size, panel_rows].
  void load(const float* gradient, int64_t first, int64_t row) {
    for (int l = 0; l < kLanes; ++l) {
      scale_[l] = panel_.scale[first / panel_.group_size * panel_.panel_rows + row + l];
      gain_[l] = 0;
    }
    for (int64_t j = 0; j < panel_.group_size; ++j) {
      for (int l = 0; l < kLanes; ++l) {
        const auto at = static_cast<size_t>(j * kLanes + l);
        gradient_[at] = gradient[j * panel_.panel_rows + row + l];
        code_[at] = panel_.code[(first + j) * panel_.panel_rows + row + l];
        dequantized_[at] = lanes::dequantize(code_[at], scale_[l]);
      }
    }
  }

  // change: [group_size, panel_rows] out, how much the rows' values rose.
  void store(int64_t first, int64_t row, float* change) const {
    for (int64_t j = 0; j < panel_.group_size; ++j) {
      for (int l = 0; l < kLanes; ++l) {
        const int64_t to = (first + j) * panel_.panel_rows + row + l;
        const auto at = static_cast<size_t>(j * kLanes + l);
        const float error = panel_.target[to] - dequantized_[at];
        change[j * panel_.panel_rows + row + l] = panel_.error[to] - error;
        panel_.code[to] = code_[at];
        panel_.error[to] = error;
      }
    }
    for (int l = 0; l < kLanes; ++l) panel_.scale[first / panel_.group_size * panel_.panel_rows + row + l] = scale_[l];
  }

 private:
  const RefinePanel& panel_;
  GroupState state_;
  std::vector<float> gradient_, code_, dequantized_, scratch_;
  float scale_[kLanes] = {};
  double gain_[kLanes] = {};
};

// T, for some groups at a time.
class Gradient {
 public:
  // `unit`, a power of two, multiplies H everywhere: it brings H to the order of 1, so that tiny activations cannot make
  // every gain vanish.
  Gradient(const RefinePanel& panel, const PreparedHessian& prepared, float unit)
      : panel_(panel),
        prepared_(prepared),
        unit_(unit),
        values_(static_cast<size_t>(std::min(panel.cols, kGroupsAtOnce * panel.group_size) * panel.panel_rows)) {}

  // [group_size, panel_rows] of the group that starts at column `first`. Called for ascending groups.
  const float* group(int64_t first) {
    if (first == end_) start(first);
    return values_.data() + (first - begin_) * panel_.panel_rows;
  }

  // The group's values rose by `change`: the gradients still to be asked for fall by H times it.
  void spread(int64_t first, const std::vector<float>& change) {
    const int64_t next = first + panel_.group_size;
    if (next == end_) return;
    gemm(Transpose::kNo, Transpose::kNo, end_ - next, panel_.panel_rows, panel_.group_size, -unit_,
         prepared_.hessian.data() + next * panel_.cols + first, panel_.cols, change.data(), panel_.panel_rows, 1.0f,
         values_.data() + (next - begin_) * panel_.panel_rows, panel_.panel_rows);
  }

  // unit H_gg damped, [group_size, group_size].
  void block(int64_t first, std::vector<float>& to) const {
    for (int64_t j = 0; j < panel_.group_size; ++j) {
      const float* h = prepared_.hessian.data() + (first + j) * panel_.cols + first;
      for (int64_t k = 0; k < panel_.group_size; ++k) to[static_cast<size_t>(j * panel_.group_size + k)] = unit_ * h[k];
      to[static_cast<size_t>(j * panel_.group_size + j)] =
          unit_ * prepared_.damped_diagonal[static_cast<size_t>(first + j)];
    }
  }

 private:
  void start(int64_t first) {
    begin_ = first;
    end_ = std::min(panel_.cols, first + kGroupsAtOnce * panel_.group_size);
    const int64_t rows = panel_.panel_rows;
    gemm(Transpose::kNo, Transpose::kNo, end_ - begin_, rows, panel_.cols, unit_,
         prepared_.hessian.data() + first * panel_.cols, panel_.cols, panel_.error, rows, 0.0f, values_.data(), rows);
    for (int64_t j = begin_; j < end_; ++j) {
      const float added = unit_ * (prepared_.damped_diagonal[static_cast<size_t>(j)] -
                                   prepared_.hessian[static_cast<size_t>(j * panel_.cols + j)]);
      float* gradient = values_.data() + (j - begin_) * rows;
      for (int64_t row = 0; row < rows; ++row) gradient[row] += added * panel_.error[j * rows + row];
    }
  }

  const RefinePanel& panel_;
  const PreparedHessian& prepared_;
  float unit_;
  std::vector<float> values_;  // [end - begin, panel_rows]
  int64_t begin_ = 0, end_ = 0;
};

// All moves on one group. True when something changed.
bool improve(const GroupState& group, const GroupMoves& moves, const PairSearch& search, int inner_rounds) {
  bool changed = search.num_factors > 0 && moves.search_pairs(group, search);
  for (int inner = 0; inner < inner_rounds; ++inner) {
    const bool scale_changed = moves.update_scale(group);
    const bool codes_changed = moves.descend_codes(group);
    changed = changed || scale_changed || codes_changed;
    if (!codes_changed) break;
  }
  return changed;
}

}  // namespace

std::vector<double> refine_round(const RefinePanel& panel, const PreparedHessian& prepared,
                                 const SolveOptions& options) {
  std::vector<double> gain(static_cast<size_t>(panel.panel_rows), 0.0);
  std::vector<float> block(static_cast<size_t>(panel.group_size * panel.group_size));
  std::vector<float> change(static_cast<size_t>(panel.group_size * panel.panel_rows));
  const int exponent = std::ilogb(*std::max_element(prepared.damped_diagonal.begin(), prepared.damped_diagonal.end()));
  const GroupMoves moves = choose(kGroupMoves)();
  const std::vector<float> factors = search_factors(options);
  Gradient gradient(panel, prepared, std::ldexp(1.0f, -exponent));
  Group group(panel, options, block);
  for (int64_t first = 0; first < panel.cols; first += panel.group_size) {
    const float* of_group = gradient.group(first);
    gradient.block(first, block);
    const BlockFactor factor = factors.empty() ? BlockFactor() : factor_block(block, panel.group_size);
    const PairSearch search{factor.order.data(), factor.spread.data(), factor.pivot.data(), factors.data(),
                            static_cast<int64_t>(factors.size())};
    std::fill(change.begin(), change.end(), 0.0f);
    bool changed = false;
    for (int64_t row = 0; row < panel.panel_rows; row += kLanes) {
      group.load(of_group, first, row);
      if (!improve(group.state(), moves, search, options.refine_inner)) continue;
      group.store(first, row, change.data());
      changed = true;
      for (int l = 0; l < kLanes; ++l) gain[static_cast<size_t>(row + l)] += std::ldexp(group.gain(l), exponent);
    }
    if (changed) gradient.spread(first, change);
  }
  return gain;
}

double refine_flops(const RefinePanel& panel, const SolveOptions& options) {
  const auto tried = static_cast<double>(search_factors(options).size());
  // A group's conditional optimum and present loss cost three triangular products, each scale tried costs one.
  const double of_search = (tried + 3) * static_cast<double>(panel.group_size * panel.cols * panel.panel_rows);
  return product_flops(panel.panel_rows, panel.cols, panel.cols) + (tried > 0 ? of_search : 0);
}

}  // namespace trefoil
