#include "kernels/softmax.h"

#include <algorithm>

#include "base/vectorize.h"
#include "kernels/elementary.h"
#include "kernels/lanes.h"

namespace trefoil {

TREFOIL_VECTORIZE void softmax(std::span<float> row, Rounding rounding) noexcept {
  const float largest = *std::max_element(row.begin(), row.end());
  for (float& value : row) value = exp_f32(value - largest);
  const float* p = row.data();
  const float total = lane_sum(static_cast<int64_t>(row.size()), [=](int64_t i) { return p[i]; });
  for (float& value : row) value = rounded(value / total, rounding);
}

}  // namespace trefoil
