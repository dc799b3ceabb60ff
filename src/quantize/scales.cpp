#include "quantize/scales.h"

#include <algorithm>
#include <cmath>

#include "quantize/lane_kernels.h"
#include "quantize/lanes.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

using lanes::CodeRange;
using lanes::kLanes;

// Groups whose largest magnitude is below this are treated as zero: their scale would leave the normal numbers.
constexpr float kSmallestGroup = 0x1p-110f;

float half_levels(int num_bits) {
  return static_cast<float>((1 << num_bits) - 1) / 2.0f;
}

// One group of kLanes rows, every row multiplied by a power of two that brings its absmax into [1, 2).
struct GroupLanes {
  int64_t group_size;
  std::vector<float> value;       // [group_size, kLanes]
  std::span<const float> weight;  // [group_size]
};

// The exact loss of a scale, and the least-squares scale of the codes it gives.
void exact_loss(const GroupLanes& group, const float* scale, CodeRange range, float* loss, float* least_squares) {
  float cross[kLanes] = {}, power[kLanes] = {};
  for (int l = 0; l < kLanes; ++l) loss[l] = 0.0f;
  for (int64_t j = 0; j < group.group_size; ++j) {
    const float* value = group.value.data() + j * kLanes;
    const float weight = group.weight[static_cast<size_t>(j)];
    for (int l = 0; l < kLanes; ++l) {
      const float code = lanes::quantize(value[l] / scale[l], range);
      const float error = value[l] - lanes::dequantize(code, scale[l]);
      loss[l] += weight * error * error;
      cross[l] += weight * value[l] * code;
      power[l] += weight * code * code;
    }
  }
  for (int l = 0; l < kLanes; ++l) least_squares[l] = power[l] > 0.0f ? lanes::to_bf16(cross[l] / power[l]) : scale[l];
}

// The grid of scales, as multiples of the min-max scale: ascending, positive before negative.
std::vector<float> grid_factors(const SolveOptions& options) {
  std::vector<float> factors;
  const double step = (options.search_high - options.search_low) / options.search_steps;
  for (const float sign : {1.0f, -1.0f}) {
    if (sign < 0.0f && options.scale_sign == ScaleSign::kPositive) break;
    for (int i = 0; i <= options.search_steps; ++i)
      factors.push_back(static_cast<float>(options.search_low + step * i) * sign);
  }
  return factors;
}

// base: [kLanes] the min-max scale of each lane. best: [kLanes] out.
void search_lanes(const GroupLanes& group, const float* base, int num_bits, const std::vector<float>& factors,
                  float* best) {
  const CodeRange range(num_bits);
  choose(kLaneKernels)().search_grid({.group_size = group.group_size,
                                      .value = group.value.data(),
                                      .weight = group.weight.data(),
                                      .base = base,
                                      .factors = factors.data(),
                                      .num_factors = static_cast<int64_t>(factors.size()),
                                      .code_low = range.low,
                                      .code_high = range.high,
                                      .best = best});
  float best_loss[kLanes], loss[kLanes], scale[kLanes];
  float polished[kLanes], ignored[kLanes];
  exact_loss(group, best, range, best_loss, polished);
  for (int round = 0; round < 2; ++round) {
    std::copy_n(polished, kLanes, scale);
    exact_loss(group, scale, range, loss, round == 0 ? polished : ignored);
    for (int l = 0; l < kLanes; ++l) {
      const bool better = loss[l] < best_loss[l] && (scale[l] > 0.0f) == (best[l] > 0.0f);
      best_loss[l] = better ? loss[l] : best_loss[l];
      best[l] = better ? scale[l] : best[l];
    }
  }
}

}  // namespace

std::vector<uint16_t> min_max_scales(std::span<const float> weight, int64_t rows, int64_t cols, int64_t group_size,
                                     int num_bits) {
  std::vector<uint16_t> scales(static_cast<size_t>(rows * (cols / group_size)));
  for (size_t group = 0; group < scales.size(); ++group) {
    float absmax = 0.0f;
    for (const float value : weight.subspan(group * static_cast<size_t>(group_size), static_cast<size_t>(group_size))) {
      absmax = std::max(absmax, std::abs(value));
    }
    const uint16_t scale = f32_to_bf16(round_to_bf16(absmax) / half_levels(num_bits));
    scales[group] = bf16_to_f32(scale) == 0.0f ? f32_to_bf16(kZeroGroupScale) : scale;
  }
  return scales;
}

std::vector<uint16_t> search_scales(std::span<const float> target, std::span<const float> column_weight, int64_t rows,
                                    int64_t cols, int64_t group_size, int num_bits, const SolveOptions& options) {
  const int64_t groups = cols / group_size;
  std::vector<uint16_t> scales(static_cast<size_t>(rows * groups));
  const std::vector<float> factors = grid_factors(options);
  GroupLanes lane_group{group_size, std::vector<float>(static_cast<size_t>(group_size * kLanes)), {}};
  for (int64_t g = 0; g < groups; ++g) {
    lane_group.weight = column_weight.subspan(static_cast<size_t>(g * group_size), static_cast<size_t>(group_size));
    for (int64_t row = 0; row < rows; row += kLanes) {
      float base[kLanes], best[kLanes];
      int exponent[kLanes];
      for (int l = 0; l < kLanes; ++l) {
        const float* values = row + l < rows ? target.data() + (row + l) * cols + g * group_size : nullptr;
        float absmax = 0.0f;
        for (int64_t j = 0; values != nullptr && j < group_size; ++j) absmax = std::max(absmax, std::abs(values[j]));
        const bool zero = absmax < kSmallestGroup;
        exponent[l] = zero ? 0 : std::ilogb(absmax);
        const float normalise = std::ldexp(1.0f, -exponent[l]);
        for (int64_t j = 0; j < group_size; ++j) {
          lane_group.value[static_cast<size_t>(j * kLanes + l)] = zero ? 0.0f : values[j] * normalise;
        }
        base[l] = zero ? 0.0f : lanes::to_bf16(lanes::to_bf16(absmax * normalise) / half_levels(num_bits));
      }
      // A zero lane is searched as if its scale were 1 and then given the harmless one.
      float searched[kLanes];
      for (int l = 0; l < kLanes; ++l) searched[l] = base[l] == 0.0f ? 1.0f : base[l];
      search_lanes(lane_group, searched, num_bits, factors, best);
      for (int l = 0; l < kLanes && row + l < rows; ++l) {
        const float scale = base[l] == 0.0f ? kZeroGroupScale : std::ldexp(best[l], exponent[l]);
        scales[static_cast<size_t>((row + l) * groups + g)] = f32_to_bf16(scale);
      }
    }
  }
  return scales;
}

}  // namespace trefoil
