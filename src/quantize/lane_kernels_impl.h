// The loops of lane_kernels.h, compiled once per instruction set: included by lane_kernels_{scalar,avx2,avx512}.cpp and by
// nothing else.
#include <limits>

#include "quantize/lane_kernels.h"
#include "quantize/lane_vector.h"

namespace trefoil {
namespace {

void sweep_block(const SweepBlock& block) {
  const int64_t stride = block.panel_rows;
  // Rows of a panel lie a power of two apart, which few sets of a cache have to share: what is added to again and again
  // is kept together.
  float* carried = block.scratch;
  V objective = {};
  for (int64_t j = 0; j < block.count; ++j) store(carried + j * kRows, load(block.carried + j * stride + block.row));
  for (int64_t j = 0; j < block.count; ++j) {
    const int64_t column = block.order[block.first + j];
    const int64_t at = column * stride + block.row;
    const V target = load(block.target + at);
    const V scale = load(block.scale + column / block.group_size * stride + block.row);
    const V received = load(carried + j * kRows);
    const V aim = target + (block.mask == nullptr ? received : received * load(block.mask + at));
    const V code = quantize(aim / scale, block.code_low, block.code_high);
    const V value = to_bf16(code * scale);
    const V spill = block.mask == nullptr ? target - value : aim - value;
    const V missed = aim - value;
    objective += block.pivots[block.first + j] * missed * missed;
    store(block.code + at, code);
    store(block.error + at, target - value);
    store(block.pending + (block.first + j) * stride + block.row, spill);
    const float* to = block.spread + (block.first + j) * block.cols + block.first;
    for (int64_t k = j + 1; k < block.count; ++k) store(carried + k * kRows, load(carried + k * kRows) + to[k] * spill);
  }
  store(block.objective + block.row, objective);
}

void search_grid(const GridSearch& search) {
  constexpr int64_t kColumnsBetweenLooks = 8;
  const V base = load(search.base);
  V best = {}, best_loss = splat(std::numeric_limits<float>::infinity());
  for (int64_t f = 0; f < search.num_factors; ++f) {
    const V scale = to_bf16(base * search.factors[f]);
    const V inverse = 1.0f / scale;
    V loss = {};
    for (int64_t j = 0; j < search.group_size; ++j) {
      const V value = load(search.value + j * kRows);
      const V error = value - quantize(value * inverse, search.code_low, search.code_high) * scale;
      loss += search.weight[j] * error * error;
      // A sum of squares only grows: nobody's best, give up.
      if (j % kColumnsBetweenLooks == 0 && !any_lane(loss < best_loss ? splat(1.0f) : V{})) break;
    }
    best = loss < best_loss ? scale : best;
    best_loss = loss < best_loss ? loss : best_loss;
  }
  store(search.best, best);
}

}  // namespace
}  // namespace trefoil
