#include "model/resident_weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <vector>

#include "base/arena.h"
#include "base/check.h"
#include "base/error.h"
#include "checkpoint/linear_storage.h"
#include "kernels/code_tiles.h"
#include "kernels/row_matmul.h"
#include "model/linear.h"
#include "model/tile_storage.h"
#include "model/weight_shape.h"
#include "tensor/bf16.h"
#include "tensor/finite.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

class TileLinear : public LinearWeight {
 public:
  TileLinear(int64_t out_features, int64_t in_features, TileFormat format, const std::byte* tiles)
      : LinearWeight(out_features, in_features), format_(format), tiles_(tiles) {}

  // For reference numerics and tools; element by element.
  void decode_rows(int64_t row_begin, int64_t row_end, std::span<float> out) const override {
    const int64_t groups = ceil_div(in_features(), kTileCols);
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t k = 0; k < in_features(); ++k) {
        const std::byte* tile = tiles_ + (row / kTileRows * groups + k / kTileCols) * tile_bytes(format_);
        const TileElement element =
            tile_element(format_, tile, static_cast<int>(row % kTileRows), static_cast<int>(k % kTileCols));
        out[static_cast<size_t>((row - row_begin) * in_features() + k)] = round_to_bf16(element.value * element.scale);
      }
    }
  }

  DirectForm direct() const override {
    return {.kind = DirectForm::Kind::kTiles, .rows = {}, .tile_format = format_, .tiles = tiles_, .codes = {}};
  }

 private:
  TileFormat format_;
  const std::byte* tiles_;
};

class RowLinear : public LinearWeight {
 public:
  RowLinear(int64_t out_features, const RowMatrix& rows) : LinearWeight(out_features, rows.k), rows_(rows) {}

  void decode_rows(int64_t row_begin, int64_t row_end, std::span<float> out) const override {
    row_decode(rows_.from(row_begin), row_end - row_begin, out.data());
  }
  DirectForm direct() const override { return {.kind = DirectForm::Kind::kRows, .rows = rows_, .codes = {}}; }

 private:
  RowMatrix rows_;
};

[[noreturn]] void fail_rows(const TensorRef& tensor, int64_t row, std::string_view what) {
  fail(ErrorCode::kCorrupt, "{}: rows {} to {}: {}", tensor.info.name, row, row + kTileRows - 1, what);
}

// Scales of some rows from `row` on that kernels may multiply with.
void check_scales(const StoredLinear& stored, int64_t row, std::span<const std::byte> codes,
                  std::span<const std::byte> scales, int64_t num_rows) {
  if (stored.format == LinearFormat::kPackedInt) {
    for (size_t i = 0; i < scales.size(); i += 2) {
      const float scale = bf16_to_f32(load<uint16_t>(scales.data() + i));
      if (!std::isfinite(scale * 8)) fail_rows(*stored.scale, row, "a scale is not finite, or too large for its codes");
    }
    return;
  }
  constexpr auto kLargestSafe = std::byte{252};  // 6 * 2^(252 - 127) is the largest value that is surely finite
  if (std::all_of(scales.begin(), scales.end(), [](std::byte e) { return e <= kLargestSafe; })) return;
  std::vector<float> values(static_cast<size_t>(stored.in_features));
  const size_t packed_row = values.size() / 2, scale_row = values.size() / static_cast<size_t>(kMxfp4GroupSize);
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r) {
    const auto bytes = [](std::span<const std::byte> all, size_t at, size_t count) {
      return std::span(reinterpret_cast<const uint8_t*>(all.data()) + at * count, count);
    };
    if (!mxfp4_decode_row(bytes(codes, r, packed_row), bytes(scales, r, scale_row), values)) {
      fail_rows(*stored.scale, row, "a scale byte is 255 or makes a value that is not finite");
    }
  }
}

}  // namespace

struct ResidentWeights::State {
  std::shared_ptr<const Checkpoint> checkpoint;
  CheckpointWeights stored;
  Options options;
  ThreadPool& pool;
  mutable Arena arena;
  mutable ResidentReport report;
  mutable double squared_error = 0, squared_weight = 0;  // of int8 rows
  mutable std::mutex error_mutex;

  State(std::shared_ptr<const Checkpoint> source, const Options& wanted, ThreadPool& threads)
      : checkpoint(source), stored(std::move(source)), options(wanted), pool(threads) {}

  std::unique_ptr<LinearWeight> load_tiles(const StoredLinear& linear, TileFormat format) const;
  std::unique_ptr<LinearWeight> load_bf16(const StoredLinear& linear) const;
  std::unique_ptr<LinearWeight> load_int8(const StoredLinear& linear) const;
};

std::unique_ptr<LinearWeight> ResidentWeights::State::load_tiles(const StoredLinear& linear, TileFormat format) const {
  const int64_t rows = linear.out_features;
  const std::span<std::byte> tiles = arena.take(static_cast<uint64_t>(tiles_bytes(format, rows, linear.in_features)));
  const int64_t block_bytes = tiles_bytes(format, kTileRows, linear.in_features);
  const int64_t code_row = static_cast<int64_t>(linear.packed->info.size()) / rows;
  const int64_t scale_row = static_cast<int64_t>(linear.scale->info.size()) / rows;
  pool.parallel_for(ceil_div(rows, kTileRows), [&](int64_t block) {
    const int64_t row = block * kTileRows, count = std::min(kTileRows, rows - row);
    thread_local std::vector<std::byte> codes, scales;
    codes.resize(static_cast<size_t>(count * code_row));
    scales.resize(static_cast<size_t>(count * scale_row));
    checkpoint->read(*linear.packed, static_cast<uint64_t>(row * code_row), codes);
    checkpoint->read(*linear.scale, static_cast<uint64_t>(row * scale_row), scales);
    check_scales(linear, row, codes, scales, count);
    pack_tiles(code_rows_of({.linear = &linear, .weight = {}, .packed = codes, .scale = scales}), count, 0,
               tiles.subspan(static_cast<size_t>(block * block_bytes), static_cast<size_t>(block_bytes)));
  });
  report.tile_bytes += tiles.size();
  return std::make_unique<TileLinear>(rows, linear.in_features, format, tiles.data());
}

std::unique_ptr<LinearWeight> ResidentWeights::State::load_bf16(const StoredLinear& linear) const {
  const std::span<std::byte> rows = arena.take(linear.weight->info.size());
  constexpr int64_t kPiece = int64_t{4} << 20;
  pool.parallel_ranges(static_cast<int64_t>(rows.size()), kPiece, [&](int64_t begin, int64_t end) {
    const auto piece = rows.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    checkpoint->read(*linear.weight, static_cast<uint64_t>(begin), piece);
    if (const auto bad = first_non_finite(DType::kBF16, piece)) {
      fail(ErrorCode::kCorrupt, "{}: row {}: a value is not finite", linear.weight->info.name,
           (begin / 2 + *bad) / linear.in_features);
    }
  });
  report.row_bytes += rows.size();
  return std::make_unique<RowLinear>(
      linear.out_features, RowMatrix{.format = RowFormat::kBf16, .values = rows.data(), .k = linear.in_features});
}

std::unique_ptr<LinearWeight> ResidentWeights::State::load_int8(const StoredLinear& linear) const {
  RowMatrix matrix{.format = RowFormat::kInt8, .k = linear.in_features};
  const int64_t rows = linear.out_features, k = linear.in_features, groups = matrix.groups();
  const std::span<std::byte> values = arena.take(static_cast<uint64_t>(rows * k));
  const std::span<std::byte> scales = arena.take(static_cast<uint64_t>(rows * groups) * sizeof(uint16_t));
  auto* const q = reinterpret_cast<int8_t*>(values.data());
  auto* const scale = reinterpret_cast<uint16_t*>(scales.data());
  matrix.values = q;
  matrix.scale = scale;
  pool.parallel_ranges(rows, std::max<int64_t>(1, (1 << 18) / k), [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const std::span<float> w = thread_scratch(0, count * k), back = thread_scratch(1, count * k);
    decode_linear(*checkpoint, linear, begin, end, w);
    quantize_int8_rows(w, count, k, {q + begin * k, static_cast<size_t>(count * k)},
                       {scale + begin * groups, static_cast<size_t>(count * groups)});
    row_decode(matrix.from(begin), count, back.data());
    double error = 0, weight = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      error += static_cast<double>(w[i] - back[i]) * static_cast<double>(w[i] - back[i]);
      weight += static_cast<double>(w[i]) * static_cast<double>(w[i]);
    }
    const std::lock_guard lock(error_mutex);
    squared_error += error;
    squared_weight += weight;
  });
  report.row_bytes += values.size() + scales.size();
  return std::make_unique<RowLinear>(rows, matrix);
}

ResidentWeights::ResidentWeights(std::shared_ptr<const Checkpoint> checkpoint, const Options& options, ThreadPool& pool)
    : state_(std::make_unique<State>(std::move(checkpoint), options, pool)) {}

ResidentWeights::~ResidentWeights() = default;

std::unique_ptr<LinearWeight> ResidentWeights::linear(std::string_view module, int64_t out_features,
                                                      int64_t in_features) const {
  const State& s = *state_;
  const StoredLinear stored = resolve_linear(*s.checkpoint, s.stored.prefix() + std::string(module));
  require_shape(stored.module, {stored.out_features, stored.in_features}, {out_features, in_features});
  if (is_routed_expert(module)) {
    const std::optional<TileFormat> format = tile_format_of(stored);
    if (s.options.experts && format) return s.load_tiles(stored, *format);
  } else if (stored.format == LinearFormat::kPlain) {
    // The router decides which experts run: it stays as stored, as do the embedding's rows, of which a token reads one.
    const bool keep = module.ends_with(".gate") || module.ends_with("embed_tokens");
    if (s.options.trunk == TrunkForm::kInt8 && !keep) return s.load_int8(stored);
    if (stored.weight->info.dtype == DType::kBF16) return s.load_bf16(stored);
  }
  for (const TensorRef* tensor : {stored.weight, stored.packed, stored.scale}) {
    if (tensor != nullptr) s.report.stored_bytes += tensor->info.size();
  }
  return s.stored.linear(module, out_features, in_features);
}

std::vector<float> ResidentWeights::vector(std::string_view name, const Shape& shape) const {
  return state_->stored.vector(name, shape);
}

ResidentReport ResidentWeights::report() const {
  ResidentReport report = state_->report;
  if (state_->squared_weight > 0) {
    report.int8_relative_error = std::sqrt(state_->squared_error / state_->squared_weight);
  }
  return report;
}

}  // namespace trefoil
