#include "model/linear.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/matmul.h"

namespace trefoil {

std::span<float> thread_scratch(int slot, int64_t size) {
  thread_local std::array<std::vector<float>, 8> buffers;
  std::vector<float>& buffer = buffers.at(static_cast<size_t>(slot));
  if (buffer.size() < static_cast<size_t>(size)) buffer.resize(static_cast<size_t>(size));
  return {buffer.data(), static_cast<size_t>(size)};
}

int64_t rows_per_task(int64_t out_features, int64_t in_features, int num_threads) {
  constexpr int64_t kBlockFloats =
      64 * 1024;                          // 256 KiB: a decoded block stays in a core's L2 while tokens pass over it
  constexpr int64_t kTasksPerThread = 4;  // enough that one slow thread does not hold up the rest
  const int64_t by_cache = kBlockFloats / std::max<int64_t>(1, in_features);
  const int64_t by_balance = ceil_div(out_features, kTasksPerThread * num_threads);
  return round_up(std::max<int64_t>(1, std::min(by_cache, by_balance)), 4);
}

void apply_linear(const Runtime& runtime, const LinearWeight& weight, std::span<const float> x, int64_t tokens,
                  std::span<float> y) {
  const int64_t out_features = weight.out_features();
  const int64_t in_features = weight.in_features();
  TREFOIL_CHECK(x.size() == block_size(tokens, in_features));
  TREFOIL_CHECK(y.size() == block_size(tokens, out_features));
  const int64_t grain = rows_per_task(out_features, in_features, runtime.pool->num_threads());
  runtime.pool->parallel_ranges(out_features, grain, [&](int64_t begin, int64_t end) {
    const std::span<float> rows = thread_scratch(0, (end - begin) * in_features);
    weight.decode_rows(begin, end, rows);
    matmul({.x = x.data(),
            .w = rows.data(),
            .y = y.data() + begin,
            .tokens = tokens,
            .rows = end - begin,
            .k = in_features,
            .x_stride = in_features,
            .y_stride = out_features});
    for (int64_t t = 0; t < tokens; ++t) {
      round_in_place({y.data() + t * out_features + begin, static_cast<size_t>(end - begin)}, runtime.rounding);
    }
  });
}

std::vector<float> apply_linear(const Runtime& runtime, const LinearWeight& weight, std::span<const float> x,
                                int64_t tokens) {
  std::vector<float> y(block_size(tokens, weight.out_features()));
  apply_linear(runtime, weight, x, tokens, y);
  return y;
}

}  // namespace trefoil
