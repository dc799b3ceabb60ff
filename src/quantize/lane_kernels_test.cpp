#include "quantize/lane_kernels.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "quantize/lanes.h"
#include "quantize/solver_test_data.h"

namespace trefoil {
namespace {

using lanes::kLanes;
using solver_test::gaussian;

std::vector<float> scales_around(float middle, int64_t count, uint32_t seed) {
  std::vector<float> scales = gaussian(count, seed);
  for (float& scale : scales) scale = lanes::to_bf16(middle * (scale < 0 ? scale - 0.5f : scale + 0.5f));
  return scales;
}

struct Swept {
  std::vector<float> code, error, pending, objective;
  bool operator==(const Swept&) const = default;
};

Swept sweep(const LaneKernels& kernels, bool masked) {
  constexpr int64_t kCols = 192, kRows = 32, kGroup = 64, kFirst = 64, kCount = 70;
  std::vector<int64_t> order(kCols);
  std::iota(order.rbegin(), order.rend(), int64_t{0});
  std::vector<float> spread = gaussian(kCols * kCols, 1), mask = gaussian(kCols * kRows, 2);
  for (float& value : spread) value *= 0.1f;
  for (float& value : mask) value = value < -1 ? 0.0f : 1.0f;
  const std::vector<float> target = gaussian(kCols * kRows, 3), carried = gaussian(kCount * kRows, 4);
  const std::vector<float> scale = scales_around(0.4f, kCols / kGroup * kRows, 5);
  std::vector<float> pivots = gaussian(kCols, 8), scratch(kCount * kLanes);
  for (float& value : pivots) value *= value;
  Swept swept;
  swept.objective.resize(kRows);
  for (std::vector<float>* values : {&swept.code, &swept.error, &swept.pending}) values->resize(target.size());
  const lanes::CodeRange range(3);
  for (int64_t row = 0; row < kRows; row += kLanes) {
    kernels.sweep_block({kFirst,
                         kCount,
                         row,
                         kCols,
                         kRows,
                         kGroup,
                         order.data(),
                         pivots.data(),
                         spread.data(),
                         target.data(),
                         masked ? mask.data() : nullptr,
                         scale.data(),
                         carried.data(),
                         range.low,
                         range.high,
                         swept.code.data(),
                         swept.error.data(),
                         swept.pending.data(),
                         swept.objective.data(),
                         scratch.data()});
  }
  return swept;
}

std::vector<float> search(const LaneKernels& kernels) {
  constexpr int64_t kGroup = 64;
  const std::vector<float> value = gaussian(kGroup * kLanes, 6), base = scales_around(0.5f, kLanes, 7);
  std::vector<float> weight = gaussian(kGroup, 8), factors;
  for (float& w : weight) w = w * w + 0.01f;
  for (int i = 0; i <= 80; ++i) {
    for (const float sign : {1.0f, -1.0f}) factors.push_back(sign * (0.45f + 0.01f * static_cast<float>(i)));
  }
  std::vector<float> best(kLanes);
  const lanes::CodeRange range(3);
  kernels.search_grid({kGroup, value.data(), weight.data(), base.data(), factors.data(),
                       static_cast<int64_t>(factors.size()), range.low, range.high, best.data()});
  return best;
}

TEST(LaneKernels, SameBitsOnEveryInstructionSet) {
  const LaneKernels plain = lane_kernels_scalar();
  for (const auto& impl : kLaneKernels) {
    if (impl.isa > detected_isa()) continue;
    EXPECT_EQ(sweep(impl.run(), false), sweep(plain, false)) << to_string(impl.isa);
    EXPECT_EQ(sweep(impl.run(), true), sweep(plain, true)) << to_string(impl.isa);
    EXPECT_EQ(search(impl.run()), search(plain)) << to_string(impl.isa);
  }
}

// Giving up on hopeless candidates early must not change who wins.
TEST(LaneKernels, GridSearchFindsTheLeastLoss) {
  const std::vector<float> value = gaussian(64 * kLanes, 9), weight(64, 1.0f), base(kLanes, 0.5f);
  const std::vector<float> factors = {3.0f, 0.2f, 1.0f, -1.0f, 0.9f, -0.8f, 1.1f, 9.0f};
  std::vector<float> best(kLanes);
  const lanes::CodeRange range(3);
  choose(kLaneKernels)().search_grid(
      {64, value.data(), weight.data(), base.data(), factors.data(), 8, range.low, range.high, best.data()});
  for (int lane = 0; lane < kLanes; ++lane) {
    float winner = 0, least = std::numeric_limits<float>::infinity();
    for (const float factor : factors) {
      const float scale = lanes::to_bf16(0.5f * factor), inverse = 1.0f / scale;
      float loss = 0;
      for (int j = 0; j < 64; ++j) {
        const float v = value[static_cast<size_t>(j * kLanes + lane)];
        const float error = v - lanes::quantize(v * inverse, range) * scale;
        loss += error * error;
      }
      if (loss < least) winner = scale, least = loss;
    }
    EXPECT_EQ(best[static_cast<size_t>(lane)], winner) << lane;
  }
}

}  // namespace
}  // namespace trefoil
