#include "kernels/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/elementary.h"

namespace trefoil {

bool choose_experts(std::span<const float> logits, std::span<const float> bias, double scaling,
                    const RouterScratch& scratch, std::span<int32_t> expert, std::span<float> weight) noexcept {
  const auto score = scratch.score;
  const auto biased = scratch.biased;
  for (size_t e = 0; e < logits.size(); ++e) {
    score[e] = sigmoid_f32(logits[e]);
    biased[e] = score[e] + bias[e];
    if (std::isnan(biased[e])) return false;
  }
  std::iota(scratch.order.begin(), scratch.order.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    const float x = biased[static_cast<size_t>(a)];
    const float y = biased[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const auto end = scratch.order.begin() + static_cast<std::ptrdiff_t>(expert.size());
  std::partial_sort(scratch.order.begin(), end, scratch.order.end(), better);
  std::copy(scratch.order.begin(), end, expert.begin());
  std::sort(expert.begin(), expert.end());

  float total = 0;
  for (const int32_t e : expert) total += score[static_cast<size_t>(e)];
  for (size_t i = 0; i < expert.size(); ++i) {
    weight[i] = score[static_cast<size_t>(expert[i])] / (total + 1e-20f) * static_cast<float>(scaling);
  }
  return true;
}

}  // namespace trefoil
