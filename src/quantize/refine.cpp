#include "quantize/refine.h"

#include <algorithm>
#include <cmath>

#include "quantize/lanes.h"
#include "quantize/linalg.h"

namespace trefoil {
namespace {

using lanes::CodeRange;
using lanes::kLanes;

constexpr float kSmallestScale = 0x1p-126f;

// One group of kLanes rows.
struct GroupLanes {
  int64_t size = 0;
  const float* block = nullptr;     // H_gg damped, [size, size]
  std::vector<float> gradient;      // T_g [size, kLanes]
  std::vector<float> code;          // [size, kLanes]
  std::vector<float> dequantized;   // [size, kLanes]
  std::vector<float> change, work;  // scratch [size, kLanes]
  float scale[kLanes] = {};
  double gain[kLanes] = {};

  explicit GroupLanes(int64_t group_size) : size(group_size) {
    const auto count = static_cast<size_t>(group_size * kLanes);
    for (std::vector<float>* values : {&gradient, &code, &dequantized, &change, &work}) values->resize(count);
  }
};

// product[i] = sum_j block[i, j] values[j], per lane.
void multiply_block(const GroupLanes& group, const float* values, float* product) {
  for (int64_t i = 0; i < group.size; ++i) {
    float sum[kLanes] = {};
    for (int64_t j = 0; j < group.size; ++j) {
      const float h = group.block[i * group.size + j];
      for (int l = 0; l < kLanes; ++l) sum[l] += h * values[j * kLanes + l];
    }
    std::copy_n(sum, kLanes, product + i * kLanes);
  }
}

// The least-squares scale of the current codes, kept per lane where it lowers the loss.
bool update_scale(GroupLanes& group, ScaleSign sign) {
  multiply_block(group, group.code.data(), group.work.data());
  float along[kLanes] = {}, curvature[kLanes] = {}, candidate[kLanes];
  for (int64_t at = 0; at < group.size * kLanes; at += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      along[l] += group.code[static_cast<size_t>(at + l)] * group.gradient[static_cast<size_t>(at + l)];
      curvature[l] += group.code[static_cast<size_t>(at + l)] * group.work[static_cast<size_t>(at + l)];
    }
  }
  bool any = false;
  for (int l = 0; l < kLanes; ++l) {
    const float wanted =
        curvature[l] > 0.0f ? lanes::to_bf16(group.scale[l] + along[l] / curvature[l]) : group.scale[l];
    const bool usable =
        std::isfinite(wanted) && std::abs(wanted) >= kSmallestScale && (sign == ScaleSign::kAny || wanted > 0.0f);
    candidate[l] = usable ? wanted : group.scale[l];
    any = any || candidate[l] != group.scale[l];
  }
  if (!any) return false;
  float first_order[kLanes] = {}, second_order[kLanes] = {};
  for (int64_t at = 0; at < group.size * kLanes; at += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const auto i = static_cast<size_t>(at + l);
      group.change[i] = lanes::dequantize(group.code[i], candidate[l]) - group.dequantized[i];
      first_order[l] += group.change[i] * group.gradient[i];
    }
  }
  multiply_block(group, group.change.data(), group.work.data());
  for (int64_t at = 0; at < group.size * kLanes; at += kLanes) {
    for (int l = 0; l < kLanes; ++l)
      second_order[l] += group.change[static_cast<size_t>(at + l)] * group.work[static_cast<size_t>(at + l)];
  }
  float accept[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    const float gain = 2.0f * first_order[l] - second_order[l];
    accept[l] = gain > 0.0f ? 1.0f : 0.0f;
    group.gain[l] += gain > 0.0f ? static_cast<double>(gain) : 0.0;
    group.scale[l] = gain > 0.0f ? candidate[l] : group.scale[l];
  }
  for (int64_t at = 0; at < group.size * kLanes; at += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const auto i = static_cast<size_t>(at + l);
      group.dequantized[i] += accept[l] * group.change[i];
      group.gradient[i] -= accept[l] * group.work[i];
    }
  }
  return true;
}

// One cyclic pass over the group's codes.
bool descend_codes(GroupLanes& group, CodeRange range) {
  bool any_in_group = false;
  float gain_sum[kLanes] = {};
  for (int64_t j = 0; j < group.size; ++j) {
    const float diagonal = group.block[j * group.size + j], inverse = 1.0f / diagonal;
    float step[kLanes], moved = 0.0f;
    for (int l = 0; l < kLanes; ++l) {
      const auto at = static_cast<size_t>(j * kLanes + l);
      const float code =
          lanes::quantize((group.dequantized[at] + group.gradient[at] * inverse) / group.scale[l], range);
      const float value = lanes::dequantize(code, group.scale[l]);
      const float delta = value - group.dequantized[at];
      const float gain = delta * (2.0f * group.gradient[at] - delta * diagonal);
      const bool better = gain > 0.0f;
      step[l] = better ? delta : 0.0f;
      group.code[at] = better ? code : group.code[at];
      group.dequantized[at] = better ? value : group.dequantized[at];
      gain_sum[l] += better ? gain : 0.0f;
      moved += better ? 1.0f : 0.0f;
    }
    if (moved == 0.0f) continue;
    any_in_group = true;
    const float* row = group.block + j * group.size;
    for (int64_t k = 0; k < group.size; ++k) {
      for (int l = 0; l < kLanes; ++l) group.gradient[static_cast<size_t>(k * kLanes + l)] -= row[k] * step[l];
    }
  }
  for (int l = 0; l < kLanes; ++l) group.gain[l] += static_cast<double>(gain_sum[l]);
  return any_in_group;
}

void load(GroupLanes& group, const RefinePanel& panel, const float* gradient, int64_t first, int64_t row) {
  for (int64_t j = 0; j < group.size; ++j) {
    for (int l = 0; l < kLanes; ++l) {
      const auto at = static_cast<size_t>(j * kLanes + l);
      group.gradient[at] = gradient[j * panel.panel_rows + row + l];
      group.code[at] = panel.code[(first + j) * panel.panel_rows + row + l];
    }
  }
  for (int l = 0; l < kLanes; ++l) {
    group.scale[l] = panel.scale[first / panel.group_size * panel.panel_rows + row + l];
    group.gain[l] = 0;
  }
  for (int64_t j = 0; j < group.size; ++j) {
    for (int l = 0; l < kLanes; ++l) {
      group.dequantized[static_cast<size_t>(j * kLanes + l)] =
          lanes::dequantize(group.code[static_cast<size_t>(j * kLanes + l)], group.scale[l]);
    }
  }
}

void store(const GroupLanes& group, const RefinePanel& panel, int64_t first, int64_t row) {
  for (int64_t j = 0; j < group.size; ++j) {
    for (int l = 0; l < kLanes; ++l) {
      const int64_t to = (first + j) * panel.panel_rows + row + l;
      const auto at = static_cast<size_t>(j * kLanes + l);
      panel.code[to] = group.code[at];
      panel.error[to] = panel.target[to] - lanes::dequantize(group.code[at], group.scale[l]);
    }
  }
  for (int l = 0; l < kLanes; ++l) panel.scale[first / panel.group_size * panel.panel_rows + row + l] = group.scale[l];
}

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

}  // namespace

std::vector<double> refine_round(const RefinePanel& panel, const PreparedHessian& prepared,
                                 const SolveOptions& options) {
  const CodeRange range(panel.num_bits);
  std::vector<double> gain(static_cast<size_t>(panel.panel_rows), 0.0);
  std::vector<float> gradient(static_cast<size_t>(panel.group_size * panel.panel_rows));
  std::vector<float> block(static_cast<size_t>(panel.group_size * panel.group_size));
  const int exponent = std::ilogb(*std::max_element(prepared.damped_diagonal.begin(), prepared.damped_diagonal.end()));
  const float unit = std::ldexp(1.0f, -exponent);
  GroupLanes group(panel.group_size);
  group.block = block.data();
  for (int64_t first = 0; first < panel.cols; first += panel.group_size) {
    group_gradient(panel, prepared, first, unit, gradient, block);
    for (int64_t row = 0; row < panel.panel_rows; row += kLanes) {
      load(group, panel, gradient.data(), first, row);
      bool changed = false;
      for (int inner = 0; inner < options.refine_inner; ++inner) {
        const bool scale_changed = update_scale(group, options.scale_sign);
        const bool codes_changed = descend_codes(group, range);
        changed = changed || scale_changed || codes_changed;
        if (!codes_changed) break;
      }
      if (!changed) continue;
      store(group, panel, first, row);
      for (int l = 0; l < kLanes; ++l) gain[static_cast<size_t>(row + l)] += std::ldexp(group.gain[l], exponent);
    }
  }
  return gain;
}

}  // namespace trefoil
