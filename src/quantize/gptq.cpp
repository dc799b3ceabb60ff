#include "quantize/gptq.h"

#include <algorithm>
#include <vector>

#include "quantize/lane_kernels.h"
#include "quantize/lanes.h"
#include "quantize/linalg.h"

namespace trefoil {
namespace {

using lanes::CodeRange;
using lanes::kLanes;

// One column of kLanes rows: rounds `aim`, writes code and dequantized value.
inline void round_lanes(const float* aim, const float* scale, CodeRange range, float* code, float* dequantized) {
  for (int l = 0; l < kLanes; ++l) {
    code[l] = lanes::quantize(aim[l] / scale[l], range);
    dequantized[l] = lanes::dequantize(code[l], scale[l]);
  }
}

}  // namespace

std::vector<double> gptq_sweep(const SweepPanel& panel, const PreparedHessian& prepared, int64_t block_size) {
  const float* spread = panel.mask == nullptr ? prepared.unit_upper.data() : prepared.compensation.data();
  std::vector<float> pending(static_cast<size_t>(panel.cols * panel.panel_rows));  // errors to spread, processing order
  std::vector<float> carried(static_cast<size_t>(block_size * panel.panel_rows));
  std::vector<float> scratch(static_cast<size_t>(block_size * kLanes));
  std::vector<float> objective(static_cast<size_t>(panel.panel_rows));
  std::vector<double> objectives(objective.size(), 0.0);
  const CodeRange range(panel.num_bits);
  const LaneKernels kernels = choose(kLaneKernels)();
  SweepBlock block{.first = 0,
                   .count = 0,
                   .row = 0,
                   .cols = panel.cols,
                   .panel_rows = panel.panel_rows,
                   .group_size = panel.group_size,
                   .order = prepared.order.data(),
                   .pivots = prepared.pivots.data(),
                   .spread = spread,
                   .target = panel.target,
                   .mask = panel.mask,
                   .scale = panel.scale,
                   .carried = carried.data(),
                   .code_low = range.low,
                   .code_high = range.high,
                   .code = panel.code,
                   .error = panel.error,
                   .pending = pending.data(),
                   .objective = objective.data(),
                   .scratch = scratch.data()};
  for (int64_t first = 0; first < panel.cols; first += block_size) {
    const int64_t count = std::min(block_size, panel.cols - first);
    if (first == 0) {
      std::fill(carried.begin(), carried.end(), 0.0f);
    } else {
      gemm(Transpose::kYes, Transpose::kNo, count, panel.panel_rows, first, 1.0f, spread + first, panel.cols,
           pending.data(), panel.panel_rows, 0.0f, carried.data(), panel.panel_rows);
    }
    block.first = first;
    block.count = count;
    for (block.row = 0; block.row < panel.panel_rows; block.row += kLanes) kernels.sweep_block(block);
    for (size_t row = 0; row < objective.size(); ++row) objectives[row] += static_cast<double>(objective[row]);
  }
  return objectives;
}

void round_to_nearest(const SweepPanel& panel) {
  const CodeRange range(panel.num_bits);
  for (int64_t column = 0; column < panel.cols; ++column) {
    for (int64_t row = 0; row < panel.panel_rows; row += kLanes) {
      const int64_t at = column * panel.panel_rows + row;
      float dequantized[kLanes];
      round_lanes(panel.target + at, panel.scale + column / panel.group_size * panel.panel_rows + row, range,
                  panel.code + at, dequantized);
      for (int l = 0; l < kLanes; ++l) panel.error[at + l] = panel.target[at + l] - dequantized[l];
    }
  }
}

}  // namespace trefoil
