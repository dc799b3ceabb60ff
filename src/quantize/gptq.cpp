#include "quantize/gptq.h"

#include <algorithm>
#include <vector>

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

// Columns [first, first + count) of the processing order, for the kLanes rows that start at `row`.
// carried: [count, panel_rows], what earlier blocks contribute; spread: N or -U_ik / U_ii, [cols, cols].
void sweep_lanes(const SweepPanel& panel, const PreparedHessian& prepared, const float* spread, int64_t first,
                 int64_t count, int64_t row, float* carried, float* pending) {
  const CodeRange range(panel.num_bits);
  const int64_t stride = panel.panel_rows;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t column = prepared.order[static_cast<size_t>(first + j)];
    const float* target = panel.target + column * stride + row;
    const float* scale = panel.scale + column / panel.group_size * stride + row;
    const float* mask = panel.mask == nullptr ? nullptr : panel.mask + column * stride + row;
    float aim[kLanes], code[kLanes], dequantized[kLanes], spill[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      const float received = carried[j * stride + row + l];
      aim[l] = target[l] + (mask == nullptr ? received : received * mask[l]);
    }
    round_lanes(aim, scale, range, code, dequantized);
    for (int l = 0; l < kLanes; ++l) {
      panel.code[column * stride + row + l] = code[l];
      panel.error[column * stride + row + l] = target[l] - dequantized[l];
      spill[l] = (mask == nullptr ? target[l] : aim[l]) - dequantized[l];
      pending[(first + j) * stride + row + l] = spill[l];
    }
    const float* to = spread + (first + j) * panel.cols + first;
    for (int64_t k = j + 1; k < count; ++k) {
      float* receiver = carried + k * stride + row;
      for (int l = 0; l < kLanes; ++l) receiver[l] += to[k] * spill[l];
    }
  }
}

}  // namespace

void gptq_sweep(const SweepPanel& panel, const PreparedHessian& prepared, int64_t block_size) {
  const float* spread = panel.mask == nullptr ? prepared.unit_upper.data() : prepared.compensation.data();
  std::vector<float> pending(static_cast<size_t>(panel.cols * panel.panel_rows));  // errors to spread, processing order
  std::vector<float> carried(static_cast<size_t>(block_size * panel.panel_rows));
  for (int64_t first = 0; first < panel.cols; first += block_size) {
    const int64_t count = std::min(block_size, panel.cols - first);
    if (first == 0) {
      std::fill(carried.begin(), carried.end(), 0.0f);
    } else {
      gemm(Transpose::kYes, Transpose::kNo, count, panel.panel_rows, first, 1.0f, spread + first, panel.cols,
           pending.data(), panel.panel_rows, 0.0f, carried.data(), panel.panel_rows);
    }
    for (int64_t row = 0; row < panel.panel_rows; row += kLanes) {
      sweep_lanes(panel, prepared, spread, first, count, row, carried.data(), pending.data());
    }
  }
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
