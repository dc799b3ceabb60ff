#include "model/linear.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/code_tiles.h"
#include "kernels/matmul.h"
#include "kernels/row_matmul.h"

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

// Rows of a matrix read as it is that one task should take: long enough to be a stream, short enough to share out.
static int64_t rows_per_stream(int64_t out_features, int64_t in_features, int num_threads) {
  constexpr int64_t kStreamWeights = int64_t{1} << 18;
  const int64_t by_length = std::max<int64_t>(1, kStreamWeights / std::max<int64_t>(1, in_features));
  return round_up(std::max<int64_t>(1, std::min(by_length, ceil_div(out_features, num_threads))), 2);
}

uint64_t bytes_of(const LinearWeight& weight) {
  const DirectForm form = weight.direct();
  const int64_t rows = weight.out_features(), k = weight.in_features();
  switch (form.kind) {
    case DirectForm::Kind::kTiles:
    case DirectForm::Kind::kCodes:
      return static_cast<uint64_t>(tiles_bytes(form.tile_format, rows, k));
    case DirectForm::Kind::kRows:
      return static_cast<uint64_t>(form.rows.format == RowFormat::kBf16 ? 2 * rows * k
                                                                        : rows * (k + 2 * form.rows.groups()));
    case DirectForm::Kind::kNone:
      break;
  }
  return static_cast<uint64_t>(2 * rows * k);
}

std::optional<TileMode> Runtime::tile_mode() const {
  if (rounding != Rounding::kBf16) return std::nullopt;
  switch (kernels) {
    case KernelMode::kReference:
      return std::nullopt;
    case KernelMode::kExact:
      return TileMode::kExact;
    case KernelMode::kFast16:
      return TileMode::kFast16;
    case KernelMode::kFast8:
      return TileMode::kFast8;
  }
  return std::nullopt;
}

const char* to_string(KernelMode mode) {
  switch (mode) {
    case KernelMode::kReference:
      return "reference";
    case KernelMode::kExact:
      return "exact";
    case KernelMode::kFast16:
      return "fast16";
    case KernelMode::kFast8:
      return "fast8";
  }
  return "?";
}

namespace {

// One product: y[t, row] for the rows of a range.
struct Product {
  const LinearWeight& weight;
  DirectForm form;
  std::span<const float> x;
  int64_t tokens;
  std::span<float> y;

  void rows_as_they_are(int64_t begin, int64_t end) const {
    row_matmul({.w = form.rows.from(begin),
                .x = x.data(),
                .y = y.data() + begin,
                .tokens = tokens,
                .rows = end - begin,
                .x_stride = weight.in_features(),
                .y_stride = weight.out_features()});
  }

  void decoded_rows(int64_t begin, int64_t end) const {
    const int64_t in_features = weight.in_features();
    const std::span<float> rows = thread_scratch(0, (end - begin) * in_features);
    if (form.kind == DirectForm::Kind::kRows) {
      row_decode(form.rows.from(begin), end - begin, rows.data());
    } else {
      weight.decode_rows(begin, end, rows);
    }
    matmul({.x = x.data(),
            .w = rows.data(),
            .y = y.data() + begin,
            .tokens = tokens,
            .rows = end - begin,
            .k = in_features,
            .x_stride = in_features,
            .y_stride = weight.out_features()});
  }
};

}  // namespace

void apply_linear(const Runtime& runtime, const LinearWeight& weight, std::span<const float> x, int64_t tokens,
                  std::span<float> y) {
  const int64_t out_features = weight.out_features();
  const int64_t in_features = weight.in_features();
  TREFOIL_CHECK(x.size() == block_size(tokens, in_features));
  TREFOIL_CHECK(y.size() == block_size(tokens, out_features));
  const Product product{weight, weight.direct(), x, tokens, y};
  if (runtime.profile != nullptr) runtime.profile->add_bytes(bytes_of(weight));
  const bool as_it_is = product.form.kind == DirectForm::Kind::kRows && tokens <= kRowTokens;
  const int64_t grain = as_it_is ? rows_per_stream(out_features, in_features, runtime.pool->num_threads())
                                 : rows_per_task(out_features, in_features, runtime.pool->num_threads());
  runtime.pool->parallel_ranges(out_features, grain, [&](int64_t begin, int64_t end) {
    if (as_it_is) {
      product.rows_as_they_are(begin, end);
    } else {
      product.decoded_rows(begin, end);
    }
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
