// Sums over a row in a fixed order: 16 running sums over strided elements, then a fixed tree. The order depends on the
// length alone, so a row's sum is the same bits wherever and beside whatever it is computed.
#pragma once

#include <cstdint>

namespace trefoil {

constexpr int64_t kLanes = 16;

// lane[j] + lane[j + 8], + 4, + 2, + 1: the tree every sum here ends with.
inline float sum_lanes(const float* lane) {
  float eight[8];
  for (int j = 0; j < 8; ++j) eight[j] = lane[j] + lane[j + 8];
  float four[4];
  for (int j = 0; j < 4; ++j) four[j] = eight[j] + eight[j + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// sum_i f(i), i in [0, n); f is called once for each i.
template <typename F>
inline float lane_sum(int64_t n, F f) {
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lane[j] += f(i + j);
  }
  for (int64_t j = 0; i + j < n; ++j) lane[j] += f(i + j);
  return sum_lanes(lane);
}

inline float lane_dot(const float* a, const float* b, int64_t n) {
  return lane_sum(n, [=](int64_t i) { return a[i] * b[i]; });
}

inline float lane_sum_of_squares(const float* a, int64_t n) {
  return lane_dot(a, a, n);
}

}  // namespace trefoil
