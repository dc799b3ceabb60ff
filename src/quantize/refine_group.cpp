#include "quantize/refine_group.h"

#include <algorithm>
#include <numeric>

namespace trefoil {

int64_t group_scratch_floats(int64_t size) {
  constexpr int64_t kPlanes = 2 + 2 * kLargestBatch;  // ideal, best codes, and two for each scale of a batch
  return kPlanes * size * lanes::kLanes;
}

// The factorization of a small block in f64, by columns from the last.
BlockFactor factor_block(std::span<const float> block, int64_t size) {
  const auto at = [size](int64_t i, int64_t j) { return static_cast<size_t>(i * size + j); };
  BlockFactor factor;
  factor.order.resize(static_cast<size_t>(size));
  std::iota(factor.order.begin(), factor.order.end(), int64_t{0});
  std::stable_sort(factor.order.begin(), factor.order.end(),
                   [&](int64_t a, int64_t b) { return block[at(a, a)] > block[at(b, b)]; });
  std::vector<double> rest(block.size());
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      rest[at(i, j)] =
          static_cast<double>(block[at(factor.order[static_cast<size_t>(i)], factor.order[static_cast<size_t>(j)])]);
    }
  }
  factor.spread.assign(block.size(), 0.0f);
  factor.pivot.resize(static_cast<size_t>(size));
  for (int64_t j = size - 1; j >= 0; --j) {
    const double pivot = rest[at(j, j)];
    factor.pivot[static_cast<size_t>(j)] = static_cast<float>(pivot);
    for (int64_t i = 0; i < j; ++i) factor.spread[at(j, i)] = static_cast<float>(rest[at(i, j)] / pivot);
    for (int64_t i = 0; i < j; ++i) {
      const double ratio = rest[at(i, j)] / pivot;
      for (int64_t k = 0; k <= i; ++k) rest[at(k, i)] -= ratio * rest[at(k, j)];
    }
  }
  return factor;
}

}  // namespace trefoil
