// The moves of refine_group.h, compiled once per instruction set: included by refine_group_{scalar,avx2,avx512}.cpp and by
// nothing else. Everything is local to the including file (lane_vector.h).
#include <cstdint>

#include "quantize/lane_vector.h"
#include "quantize/refine_group.h"

namespace trefoil {
namespace {

// Independent sums in flight: they hide the latency of an addition, as far as there are registers (V takes two of AVX2's
// sixteen, four without).
#if defined(__AVX512F__)
constexpr int kBatch = 8;
#elif defined(__AVX2__)
constexpr int kBatch = 4;
#else
constexpr int kBatch = 2;
#endif
static_assert(kBatch <= kLargestBatch);

constexpr float kSmallestScale = 0x1p-126f;  // no subnormal scales
constexpr float kLargestScale = 0x1p100f;
constexpr float kClearlyLess = 0.999999f;  // a found pair must beat the rounding noise of f32 losses

// `wanted` where it is a scale that may be stored, else `otherwise`. A NaN fails both comparisons.
TREFOIL_INLINE V usable_or(const V& wanted, const V& otherwise, bool positive) {
  const V size = magnitude(wanted);
  V chosen = size >= kSmallestScale ? wanted : otherwise;
  chosen = size <= kLargestScale ? chosen : otherwise;
  return positive ? (wanted > 0.0f ? chosen : otherwise) : chosen;
}
TREFOIL_INLINE void add_gain(const GroupState& group, const V& gain) {
  float lane[kRows];
  store(lane, gain);
  for (int l = 0; l < kRows; ++l) group.gain[l] += static_cast<double>(lane[l]);
}

// product[i] = sum_j H_ij values[j]
TREFOIL_INLINE void multiply_block(const GroupState& group, const float* values, float* product) {
  int64_t i = 0;
  for (; i + kBatch <= group.size; i += kBatch) {
    V sum[kBatch] = {};
    for (int64_t j = 0; j < group.size; ++j) {
      const V value = load(values + j * kRows);
      for (int b = 0; b < kBatch; ++b) sum[b] = fma(group.block[(i + b) * group.size + j], value, sum[b]);
    }
    for (int b = 0; b < kBatch; ++b) store(product + (i + b) * kRows, sum[b]);
  }
  for (; i < group.size; ++i) {
    V sum = {};
    for (int64_t j = 0; j < group.size; ++j) sum = fma(group.block[i * group.size + j], load(values + j * kRows), sum);
    store(product + i * kRows, sum);
  }
}

bool update_scale(const GroupState& group) {
  float* product = group.scratch;
  float* change = group.scratch + group.size * kRows;
  multiply_block(group, group.code, product);
  V along = {}, curvature = {};
  for (int64_t at = 0; at < group.size * kRows; at += kRows) {
    along += load(group.code + at) * load(group.gradient + at);
    curvature += load(group.code + at) * load(product + at);
  }
  const V scale = load(group.scale);
  const V wanted = to_bf16(scale + along / (curvature > 0.0f ? curvature : splat(1.0f)));
  const V candidate = curvature > 0.0f ? usable_or(wanted, scale, group.positive_scales) : scale;
  if (!any_lane(candidate - scale)) return false;

  V first_order = {}, second_order = {};
  for (int64_t at = 0; at < group.size * kRows; at += kRows) {
    const V delta = to_bf16(load(group.code + at) * candidate) - load(group.dequantized + at);
    store(change + at, delta);
    first_order += delta * load(group.gradient + at);
  }
  multiply_block(group, change, product);
  for (int64_t at = 0; at < group.size * kRows; at += kRows) second_order += load(change + at) * load(product + at);
  const V gain = 2.0f * first_order - second_order;
  const V accepted_gain = gain > 0.0f ? gain : V{};
  if (!any_lane(accepted_gain)) return false;
  const V accept = gain > 0.0f ? splat(1.0f) : V{};
  const V kept = gain > 0.0f ? candidate : scale;
  store(group.scale, kept);
  add_gain(group, accepted_gain);
  for (int64_t at = 0; at < group.size * kRows; at += kRows) {
    store(group.dequantized + at, to_bf16(load(group.code + at) * kept));
    store(group.gradient + at, load(group.gradient + at) - accept * load(product + at));
  }
  return true;
}

bool descend_codes(const GroupState& group) {
  const V scale = load(group.scale);
  V total_gain = {};
  bool any = false;
  for (int64_t j = 0; j < group.size; ++j) {
    const float* row = group.block + j * group.size;
    const float diagonal = row[j], inverse = 1.0f / diagonal;
    const V gradient = load(group.gradient + j * kRows), old_code = load(group.code + j * kRows);
    const V old_value = load(group.dequantized + j * kRows);
    const V code = quantize((old_value + gradient * inverse) / scale, group.code_low, group.code_high);
    const V value = to_bf16(code * scale);
    const V delta = value - old_value;
    const V gain = delta * (2.0f * gradient - delta * diagonal);
    const V step = gain > 0.0f ? delta : V{};
    if (!any_lane(step)) continue;
    any = true;
    store(group.code + j * kRows, gain > 0.0f ? code : old_code);
    store(group.dequantized + j * kRows, gain > 0.0f ? value : old_value);
    total_gain += gain > 0.0f ? gain : V{};
    for (int64_t k = 0; k < group.size; ++k)
      store(group.gradient + k * kRows, fma(-row[k], step, load(group.gradient + k * kRows)));
  }
  add_gain(group, total_gain);
  return any;
}

// ideal = Q + T H^-1 in factor order, from N D N^T x = T.
TREFOIL_INLINE void conditional_optimum(const GroupState& group, const PairSearch& search, float* ideal) {
  const int64_t size = group.size;
  for (int64_t i = 0; i < size; ++i) store(ideal + i * kRows, load(group.gradient + search.order[i] * kRows));
  for (int64_t j = size - 1; j > 0; --j) {
    const V x = load(ideal + j * kRows);
    for (int64_t i = 0; i < j; ++i)
      store(ideal + i * kRows, fma(-search.spread[j * size + i], x, load(ideal + i * kRows)));
  }
  for (int64_t j = 0; j < size; ++j) {
    V x = load(ideal + j * kRows) / search.pivot[j];
    for (int64_t i = 0; i < j; ++i) x = fma(-search.spread[j * size + i], load(ideal + i * kRows), x);
    store(ideal + j * kRows, x);
  }
  for (int64_t i = 0; i < size; ++i) {
    store(ideal + i * kRows, load(ideal + i * kRows) + load(group.dequantized + search.order[i] * kRows));
  }
}

// The objective of the current values up to a constant of the visit: sum_j D_j (aim_j - Q_j)^2,
// aim_j = ideal_j + sum_{i<j} (ideal_i - Q_i) N_ij.
TREFOIL_INLINE V current_loss(const GroupState& group, const PairSearch& search, const float* ideal, float* spill) {
  V loss = {};
  for (int64_t j = 0; j < group.size; ++j) {
    const V value = load(group.dequantized + search.order[j] * kRows);
    V aim = load(ideal + j * kRows);
    store(spill + j * kRows, aim - value);
    for (int64_t i = 0; i < j; ++i) aim = fma(search.spread[j * group.size + i], load(spill + i * kRows), aim);
    loss += search.pivot[j] * (aim - value) * (aim - value);
  }
  return loss;
}

// Nearest plane for kBatch scales: codes [kBatch, size, kRows] in factor order, and the losses. Losses are sums of
// squares, so a batch that has nowhere a partial sum below `best` is given up: its losses are then no better.
TREFOIL_INLINE void nearest_plane(const GroupState& group, const PairSearch& search, const float* ideal, const V* scale,
                                  const V& best_loss, float* spill, float* codes, V* loss) {
  constexpr int64_t kColumnsBetweenLooks = 4;
  const int64_t size = group.size, plane = size * kRows;
  V inverse[kBatch];
  for (int b = 0; b < kBatch; ++b) {
    inverse[b] = 1.0f / scale[b];
    loss[b] = V{};
  }
  for (int64_t j = 0; j < size; ++j) {
    const V best = load(ideal + j * kRows);
    const float* spread = search.spread + j * size;
    V aim[kBatch];
    for (int b = 0; b < kBatch; ++b) aim[b] = best;
    for (int64_t i = 0; i < j; ++i) {
      for (int b = 0; b < kBatch; ++b) aim[b] = fma(spread[i], load(spill + b * plane + i * kRows), aim[b]);
    }
    for (int b = 0; b < kBatch; ++b) {
      const V code = quantize(aim[b] * inverse[b], group.code_low, group.code_high);
      const V value = to_bf16(code * scale[b]);
      store(codes + b * plane + j * kRows, code);
      store(spill + b * plane + j * kRows, best - value);
      loss[b] += search.pivot[j] * (aim[b] - value) * (aim[b] - value);
    }
    if (j % kColumnsBetweenLooks != 0) continue;
    V hope = {};
    for (int b = 0; b < kBatch; ++b) hope = loss[b] < best_loss ? splat(1.0f) : hope;
    if (!any_lane(hope)) return;
  }
}

bool search_pairs(const GroupState& group, const PairSearch& search) {
  const int64_t size = group.size, plane = size * kRows;
  float* ideal = group.scratch;
  float* best_code = ideal + plane;  // factor order
  float* spill = best_code + plane;  // [kBatch, size, kRows]
  float* codes = spill + kBatch * plane;
  conditional_optimum(group, search, ideal);
  const V before = current_loss(group, search, ideal, spill);
  const V old_scale = load(group.scale);
  V best = before * kClearlyLess, best_scale = old_scale, moved = {};
  for (int64_t first = 0; first < search.num_factors; first += kBatch) {
    V scale[kBatch], loss[kBatch];
    for (int b = 0; b < kBatch; ++b) {
      // A last incomplete batch repeats its last factor, which can win only once.
      const int64_t at = first + b < search.num_factors ? first + b : search.num_factors - 1;
      scale[b] = usable_or(to_bf16(old_scale * search.factors[at]), old_scale, group.positive_scales);
    }
    nearest_plane(group, search, ideal, scale, best, spill, codes, loss);
    for (int b = 0; b < kBatch; ++b) {
      const V gain = best - loss[b];
      if (!any_lane(gain > 0.0f ? splat(1.0f) : V{})) continue;
      best_scale = gain > 0.0f ? scale[b] : best_scale;
      moved = gain > 0.0f ? splat(1.0f) : moved;
      best = gain > 0.0f ? loss[b] : best;
      for (int64_t at = 0; at < plane; at += kRows) {
        store(best_code + at, gain > 0.0f ? load(codes + b * plane + at) : load(best_code + at));
      }
    }
  }
  if (!any_lane(moved)) return false;
  add_gain(group, moved > 0.0f ? before - best : V{});
  store(group.scale, best_scale);
  float *change = spill, *product = codes;
  for (int64_t j = 0; j < size; ++j) {
    const int64_t at = search.order[j] * kRows;
    const V code = moved > 0.0f ? load(best_code + j * kRows) : load(group.code + at);
    const V value = to_bf16(code * best_scale);
    store(change + at, value - load(group.dequantized + at));
    store(group.code + at, code);
    store(group.dequantized + at, value);
  }
  multiply_block(group, change, product);
  for (int64_t at = 0; at < plane; at += kRows)
    store(group.gradient + at, load(group.gradient + at) - load(product + at));
  return true;
}

}  // namespace
}  // namespace trefoil
