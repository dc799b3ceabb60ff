// bench_kernels() of include/trefoil/bench.h.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "base/page_buffer.h"
#include "base/splitmix64.h"
#include "base/stopwatch.h"
#include "bench/ceilings.h"
#include "bench/paired.h"
#include "kernels/code_tiles.h"
#include "kernels/packed_tokens.h"
#include "kernels/tile_matmul.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

constexpr uint64_t kCacheLine = 64;
// Matrices start this much further than a multiple of a page apart: streams a power of two apart share cache sets.
constexpr uint64_t kStagger = 13 * kCacheLine;

struct Shape {
  int64_t rows, cols;
};

// Matrices of random codes and sane scales, more of them than any cache holds.
class MatrixPool {
 public:
  MatrixPool(TileFormat format, const Shape& shape, uint64_t bytes, ThreadPool& pool)
      : format_(format),
        matrix_bytes_(static_cast<uint64_t>(tiles_bytes(format, shape.rows, shape.cols))),
        stride_(round_up(matrix_bytes_, kCacheLine) + kStagger),
        count_(std::max<int64_t>(1, static_cast<int64_t>(bytes / stride_))),
        memory_(stride_ * static_cast<uint64_t>(count_) + kCacheLine) {
    pool.parallel_for(count_, [&](int64_t i) { fill(i); });
  }

  const std::byte* matrix(int64_t i) const { return memory_.data() + stride_ * static_cast<uint64_t>(i % count_); }
  int64_t count() const { return count_; }
  uint64_t matrix_bytes() const { return matrix_bytes_; }
  std::span<const std::byte> window(int64_t first, int64_t num_matrices) const {
    const int64_t begin = first % count_;
    const int64_t end = std::min(count_, begin + num_matrices);
    return memory_.bytes().subspan(stride_ * static_cast<uint64_t>(begin),
                                   stride_ * static_cast<uint64_t>(end - begin));
  }

 private:
  void fill(int64_t i) {
    SplitMix64 random(static_cast<uint64_t>(i) + 1);
    std::byte* data = memory_.data() + stride_ * static_cast<uint64_t>(i);
    for (uint64_t at = 0; at < matrix_bytes_; at += 8) store(data + at, random.next());
    const int64_t tile = tile_bytes(format_);
    for (int64_t at = tile - kTileScaleBytes; at < static_cast<int64_t>(matrix_bytes_); at += tile) {
      for (int64_t lane = 0; lane < kTileScaleBytes; lane += 2) {
        const uint16_t scale =
            format_ == TileFormat::kMxfp4 ? uint16_t{0x7877} : f32_to_bf16(0.01f + 0.0001f * static_cast<float>(lane));
        store(data + at + lane, scale);
      }
    }
  }

  TileFormat format_;
  uint64_t matrix_bytes_, stride_;
  int64_t count_;
  PageBuffer memory_;
};

class KernelBench {
 public:
  KernelBench(const BenchKernelsOptions& options, TileFormat format, ThreadPool& pool)
      : options_(options),
        format_(format),
        pool_(pool),
        matrices_(format, {options.rows, options.cols}, options.pool_bytes, pool) {}

  BenchRow run(TileMode mode, int64_t tokens) {
    SplitMix64 random(99);
    std::vector<float> x(static_cast<size_t>(tokens * options_.cols));
    for (float& value : x) value = round_to_bf16(static_cast<float>(random.next() >> 40) * 0x1p-23f - 1);
    packed_.pack(mode, x, tokens, options_.cols);
    y_.resize(static_cast<size_t>(options_.rows * tokens));
    const bool few = tokens <= 2;
    const double weights = static_cast<double>(options_.rows * options_.cols);
    BenchRow row;
    if (few) {
      row = paired(
          options_.rounds, [&] { return read_window(); }, [&] { return stream(); });
      row.unit = "GB/s";
      row.weights_per_s = row.rate / static_cast<double>(matrices_.matrix_bytes()) * weights;
    } else {
      const double flops = 2 * weights * static_cast<double>(tokens) / static_cast<double>(matrices_.matrix_bytes());
      row = paired(
          options_.rounds, [&] { return arithmetic_peak(mode); }, [&] { return flops * stream(); });
      row.unit = "GFLOP/s";
      row.weights_per_s = row.rate / (2.0 * static_cast<double>(tokens));
    }
    return row;
  }

  // The same matrix again and again: what the kernel does when memory is no limit. Weights a second.
  BenchRow in_cache(TileMode mode) {
    run_one_token(mode);
    const int64_t block_bytes = tiles_bytes(format_, kTileRows, options_.cols);
    const int64_t blocks = std::max<int64_t>(1, 400'000 / block_bytes);  // of each thread, well inside an L2
    constexpr int kRepeats = 200;
    const auto measured = [&] {
      const Stopwatch time;
      pool_.parallel_for(pool_.num_threads(), [&](int64_t thread) {
        for (int i = 0; i < kRepeats; ++i) multiply(matrices_.matrix(thread), 0, blocks);
      });
      return static_cast<double>(kRepeats * blocks * kTileRows * options_.cols * pool_.num_threads()) / time.seconds();
    };
    BenchRow row = paired(
        options_.rounds, [&] { return arithmetic_peak(mode); }, [&] { return 2 * measured(); });
    row.unit = "GFLOP/s";
    row.weights_per_s = row.rate / 2;
    return row;
  }

 private:
  static constexpr int64_t kWindow = 20;  // matrices of one measurement: about 180 MB

  // Of the instructions that can do the mode's products, the fastest here. fast16 does each product twice.
  double arithmetic_peak(TileMode mode) {
    if (mode == TileMode::kExact)
      return std::max(peak_rate(pool_, PeakOp::kDotBf16), peak_rate(pool_, PeakOp::kFmaF32));
    const double int8 = std::max(peak_rate(pool_, PeakOp::kDotInt8), peak_rate(pool_, PeakOp::kFmaF32));
    return mode == TileMode::kFast8 ? int8 : int8 / 2;
  }

  void run_one_token(TileMode mode) {
    const std::vector<float> x(static_cast<size_t>(options_.cols), 0.5f);
    packed_.pack(mode, x, 1, options_.cols);
    y_.resize(static_cast<size_t>(options_.rows));
  }

  int64_t window_size() const {
    // Many tokens take their time: fewer matrices.
    const int64_t wanted = packed_.tokens() <= 4 ? kWindow : packed_.tokens() <= 64 ? 4 : 1;
    return std::min(wanted, matrices_.count());
  }

  double read_window() {
    const std::span<const std::byte> bytes = matrices_.window(next_, std::min(kWindow, matrices_.count()));
    next_ += kWindow;
    return read_rate(pool_, bytes);
  }

  void multiply(const std::byte* matrix, int64_t block, int64_t count) {
    const int64_t block_bytes = tiles_bytes(format_, kTileRows, options_.cols);
    tile_matmul({.format = format_,
                 .tiles = matrix + block * block_bytes,
                 .row_blocks = count,
                 .rows = count * kTileRows,
                 .x = packed_.view(),
                 .y = y_.data() + block * kTileRows,
                 .y_stride = options_.rows});
  }

  // Bytes of weights a second, every thread a share of the rows of every matrix.
  double stream() {
    const int64_t threads = pool_.num_threads(), blocks = options_.rows / kTileRows, window = window_size();
    const Stopwatch time;
    pool_.parallel_for(threads, [&](int64_t thread) {
      const int64_t begin = blocks * thread / threads, end = blocks * (thread + 1) / threads;
      for (int64_t i = 0; i < window; ++i) multiply(matrices_.matrix(next_ + i), begin, end - begin);
    });
    next_ += window;
    return static_cast<double>(matrices_.matrix_bytes()) * static_cast<double>(window) / time.seconds();
  }

  const BenchKernelsOptions& options_;
  TileFormat format_;
  ThreadPool& pool_;
  MatrixPool matrices_;
  PackedTokens packed_;
  std::vector<float> y_;
  int64_t next_ = 0;
};

// One row; no tokens mean one token on weights that stay in a cache.
struct Case {
  std::string name;
  TileMode mode;
  int64_t tokens;
};

std::vector<Case> wanted_cases(const BenchKernelsOptions& options, TileFormat format) {
  std::vector<Case> cases;
  const auto add = [&](TileMode mode, int64_t tokens, const std::string& size) {
    std::string name = fmt::format("{} {}, {}", to_string(format), to_string(mode), size);
    if (name.find(options.only) != std::string::npos) cases.push_back({std::move(name), mode, tokens});
  };
  for (const TileMode mode : {TileMode::kExact, TileMode::kFast16, TileMode::kFast8}) {
    for (const int64_t tokens : options.tokens) {
      add(mode, tokens, fmt::format("{} token{}", tokens, tokens == 1 ? "" : "s"));
    }
    add(mode, 0, "1 token in L2");
  }
  return cases;
}

}  // namespace

std::vector<BenchRow> bench_kernels(const BenchKernelsOptions& options, ProgressSink* progress) {
  const int most = options.threads > 0 ? options.threads : usable_cpus();
  std::vector<BenchRow> rows;
  for (const TileFormat format : {TileFormat::kInt3, TileFormat::kInt4, TileFormat::kMxfp4}) {
    const std::vector<Case> cases = wanted_cases(options, format);
    if (cases.empty()) continue;
    for (const int threads : most > 1 ? std::vector<int>{1, most} : std::vector<int>{1}) {
      ThreadPool pool(threads);
      KernelBench bench(options, format, pool);
      for (const Case& one : cases) {
        rows.push_back(one.tokens > 0 ? bench.run(one.mode, one.tokens) : bench.in_cache(one.mode));
        rows.back().what = one.name;
        rows.back().threads = threads;
        if (progress != nullptr) progress->update(one.name, static_cast<int64_t>(rows.size()), 0);
      }
    }
  }
  return rows;
}

}  // namespace trefoil
