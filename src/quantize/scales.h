// Rules that choose one bf16 scale per row and group before anything is rounded.
//
// weight, target: [rows, cols] row-major f32, finite, magnitude below 2^60 (checked by solve()). Result: bf16 bits
// [rows, cols / group_size], never zero and never non-finite. Groups are runs of group_size columns in original order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/solve.h"

namespace trefoil {

// What a group without a single non-zero weight gets, and what llm-compressor gives it: the epsilon of bf16.
constexpr float kZeroGroupScale = 0.0078125f;  // 2^-7

// s = bf16(absmax / ((2^bits - 1) / 2)) of bf16 weights; compressed-tensors 0.17.1, memoryless_minmax, symmetric.
std::vector<uint16_t> min_max_scales(std::span<const float> weight, int64_t rows, int64_t cols, int64_t group_size,
                                     int num_bits);

// s = argmin over candidates of sum_j column_weight[j] (target[j] - bf16(q_j s))^2, q_j = clamp-round(target[j] / s).
// Candidates: a grid over [search_low, search_high] times absmax / ((2^bits - 1) / 2), in both signs unless kPositive,
// each rounded to bf16 before it is judged; then twice the least-squares scale of the best candidate's codes, kept when
// lower. The first of equal candidates wins (grid ascending, positive before negative). column_weight: [cols], > 0.
std::vector<uint16_t> search_scales(std::span<const float> target, std::span<const float> column_weight, int64_t rows,
                                    int64_t cols, int64_t group_size, int num_bits, const SolveOptions& options);

}  // namespace trefoil
