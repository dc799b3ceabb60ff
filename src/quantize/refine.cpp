#include "quantize/refine.h"

#include <algorithm>
#include <cmath>

#include "quantize/lanes.h"
#include "quantize/linalg.h"
#include "quantize/refine_group.h"

namespace trefoil {
namespace {

using lanes::kLanes;

// Scale factors tried by the search of a group: a logarithmic grid around 1, in both signs.
std::vector<float> search_factors(const SolveOptions& options) {
  std::vector<float> factors;
  const int steps = options.refine_search_steps;
  for (int i = 0; i < steps; ++i) {
    const double position = steps == 1 ? 0.0 : 2.0 * i / (steps - 1) - 1.0;
    const auto factor = static_cast<float>(std::exp(options.refine_search_span * position));
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

  // Rows [row, row + kLanes) of the group that starts at column `first`; gradient: [group_size, panel_rows].
  void load(const std::vector<float>& gradient, int64_t first, int64_t row) {
    for (int l = 0; l < kLanes; ++l) {
      scale_[l] = panel_.scale[first / panel_.group_size * panel_.panel_rows + row + l];
      gain_[l] = 0;
    }
    for (int64_t j = 0; j < panel_.group_size; ++j) {
      for (int l = 0; l < kLanes; ++l) {
        const auto at = static_cast<size_t>(j * kLanes + l);
        gradient_[at] = gradient[static_cast<size_t>(j * panel_.panel_rows + row + l)];
        code_[at] = panel_.code[(first + j) * panel_.panel_rows + row + l];
        dequantized_[at] = lanes::dequantize(code_[at], scale_[l]);
      }
    }
  }

  void store(int64_t first, int64_t row) const {
    for (int64_t j = 0; j < panel_.group_size; ++j) {
      for (int l = 0; l < kLanes; ++l) {
        const int64_t to = (first + j) * panel_.panel_rows + row + l;
        const auto at = static_cast<size_t>(j * kLanes + l);
        panel_.code[to] = code_[at];
        panel_.error[to] = panel_.target[to] - dequantized_[at];
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

// gradient[size, panel_rows] = unit (H_damped E^T) for the group's columns; block = unit H_gg damped. `unit`, a power
// of two, brings H to the order of 1, so that tiny activations cannot make every gain vanish.
void group_gradient(const RefinePanel& panel, const PreparedHessian& prepared, int64_t first, float unit,
                    std::vector<float>& gradient, std::vector<float>& block) {
  const float* h = prepared.hessian.data() + first * panel.cols;
  gemm(Transpose::kNo, Transpose::kNo, panel.group_size, panel.panel_rows, panel.cols, unit, h, panel.cols, panel.error,
       panel.panel_rows, 0.0f, gradient.data(), panel.panel_rows);
  for (int64_t j = 0; j < panel.group_size; ++j) {
    for (int64_t k = 0; k < panel.group_size; ++k)
      block[static_cast<size_t>(j * panel.group_size + k)] = unit * h[j * panel.cols + first + k];
    const float added =
        unit * (prepared.damped_diagonal[static_cast<size_t>(first + j)] - h[j * panel.cols + first + j]);
    block[static_cast<size_t>(j * panel.group_size + j)] =
        unit * prepared.damped_diagonal[static_cast<size_t>(first + j)];
    for (int64_t row = 0; row < panel.panel_rows; ++row) {
      gradient[static_cast<size_t>(j * panel.panel_rows + row)] +=
          added * panel.error[(first + j) * panel.panel_rows + row];
    }
  }
}

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
  std::vector<float> gradient(static_cast<size_t>(panel.group_size * panel.panel_rows));
  std::vector<float> block(static_cast<size_t>(panel.group_size * panel.group_size));
  const int exponent = std::ilogb(*std::max_element(prepared.damped_diagonal.begin(), prepared.damped_diagonal.end()));
  const float unit = std::ldexp(1.0f, -exponent);
  const GroupMoves moves = choose(kGroupMoves)();
  const std::vector<float> factors = search_factors(options);
  Group group(panel, options, block);
  for (int64_t first = 0; first < panel.cols; first += panel.group_size) {
    group_gradient(panel, prepared, first, unit, gradient, block);
    const BlockFactor factor = factors.empty() ? BlockFactor() : factor_block(block, panel.group_size);
    const PairSearch search{factor.order.data(), factor.spread.data(), factor.pivot.data(), factors.data(),
                            static_cast<int64_t>(factors.size())};
    for (int64_t row = 0; row < panel.panel_rows; row += kLanes) {
      group.load(gradient, first, row);
      if (!improve(group.state(), moves, search, options.refine_inner)) continue;
      group.store(first, row);
      for (int l = 0; l < kLanes; ++l) gain[static_cast<size_t>(row + l)] += std::ldexp(group.gain(l), exponent);
    }
  }
  return gain;
}

}  // namespace trefoil
