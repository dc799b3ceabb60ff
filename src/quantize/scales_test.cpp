#include "quantize/scales.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quantize/solver_test_data.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

using solver_test::gaussian;
using solver_test::mxfp4_like_weights;

double group_loss(const float* value, const float* weight, int64_t size, float scale) {
  double loss = 0;
  for (int64_t j = 0; j < size; ++j) {
    const float code = std::nearbyint(std::min(3.0f, std::max(-4.0f, value[j] / scale)));
    const double error = static_cast<double>(value[j]) - static_cast<double>(round_to_bf16(code * scale));
    loss += static_cast<double>(weight[j]) * error * error;
  }
  return loss;
}

// gptq.md section 3: what 6, 4 and 3 times a power of two become.
TEST(MinMaxScale, PublishedValues) {
  for (const auto& [absmax, want] : {std::pair{6.0f, 1.7109375f}, std::pair{4.0f, 1.140625f},
                                     std::pair{3.0f, 0.85546875f}, std::pair{0.0f, 0x1p-7f}}) {
    std::vector<float> weight(64, 0.0f);
    weight[11] = -absmax;
    for (const int exponent : {-20, 0, 20}) {
      std::vector<float> shifted = weight;
      for (float& value : shifted) value = std::ldexp(value, exponent);
      const float scale = bf16_to_f32(min_max_scales(shifted, 1, 64, 64, 3)[0]);
      EXPECT_EQ(scale, absmax == 0.0f ? want : std::ldexp(want, exponent));
    }
  }
}

// Against every bf16 number in the range: the grid and the polish may miss the best by little, never by much.
TEST(SearchScale, IsCloseToTheBestBf16Scale) {
  constexpr int64_t kRows = 40;
  const std::vector<float> weight = mxfp4_like_weights(kRows, 64, 1);
  std::vector<float> importance = gaussian(64, 2);
  for (float& value : importance) value = std::exp(value);
  for (const ScaleSign sign : {ScaleSign::kAny, ScaleSign::kPositive}) {
    SolveOptions options;
    options.scale_sign = sign;
    const std::vector<uint16_t> scales = search_scales(weight, importance, kRows, 64, 64, 3, options);
    double found = 0, best_possible = 0, stock = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      const float* values = weight.data() + row * 64;
      const float base =
          bf16_to_f32(min_max_scales(std::span(weight).subspan(static_cast<size_t>(row * 64), 64), 1, 64, 64, 3)[0]);
      double best = std::numeric_limits<double>::infinity();
      for (uint32_t bits = 1; bits < 0x7F80; ++bits) {
        const float scale = bf16_to_f32(static_cast<uint16_t>(bits));
        if (scale < 0.4f * base || scale > 1.3f * base) continue;
        best = std::min(best, group_loss(values, importance.data(), 64, scale));
        if (sign == ScaleSign::kAny) best = std::min(best, group_loss(values, importance.data(), 64, -scale));
      }
      const double mine = group_loss(values, importance.data(), 64, bf16_to_f32(scales[static_cast<size_t>(row)]));
      EXPECT_LE(mine, group_loss(values, importance.data(), 64, base) * (1 + 1e-5))
          << "worse than the min-max scale, row " << row;
      found += mine;
      best_possible += best;
      stock += group_loss(values, importance.data(), 64, base);
    }
    EXPECT_LE(found, 1.01 * best_possible);
    EXPECT_LT(found, 0.8 * stock);
  }
}

TEST(SearchScale, GroupsSeeOnlyTheirOwnColumns) {
  std::vector<float> weight = mxfp4_like_weights(3, 192, 3);
  const std::vector<float> equal(192, 1.0f);
  const std::vector<uint16_t> before = search_scales(weight, equal, 3, 192, 64, 3, {});
  for (size_t j = 64; j < 128; ++j) weight[192 + j] *= 3.0f;  // row 1, group 1
  const std::vector<uint16_t> after = search_scales(weight, equal, 3, 192, 64, 3, {});
  for (size_t at = 0; at < 9; ++at) EXPECT_EQ(before[at] != after[at], at == 4) << at;
}

TEST(SearchScale, ZeroAndTinyGroupsGetAHarmlessScale) {
  std::vector<float> weight(128, 0.0f);
  weight[64] = 0x1p-120f;
  const std::vector<float> equal(128, 1.0f);
  for (const uint16_t scale : search_scales(weight, equal, 1, 128, 64, 3, {}))
    EXPECT_EQ(bf16_to_f32(scale), kZeroGroupScale);
}

}  // namespace
}  // namespace trefoil
