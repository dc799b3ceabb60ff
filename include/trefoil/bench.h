// Speed of this program's parts on this machine, each beside what the machine can do at most in the same second. Part of
// the public interface.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trefoil/engine.h"
#include "trefoil/progress.h"

namespace trefoil {

// A figure as a ratio: medians over rounds of (ceiling, measured, ceiling), with the quartiles of the ratio.
struct BenchRow {
  std::string what;  // "int3 fast8, 1 token"
  std::string unit;  // of rate and ceiling: "GB/s", "GFLOP/s"
  int threads = 0;
  double rate = 0;                       // median
  double ceiling = 0;                    // median of what this machine reached at most beside it
  double ratio = 0;                      // median of the rounds' ratios
  double ratio_low = 0, ratio_high = 0;  // quartiles
  double weights_per_s = 0;              // elements of the matrices a second; 0 where that means nothing
};

struct BenchKernelsOptions {
  int threads = 0;      // 0: as many as this process may use
  int rounds = 7;       // of each row
  int64_t rows = 3072;  // of one matrix
  int64_t cols = 3584;
  uint64_t pool_bytes = 1'500'000'000;  // weights streamed through: several times the last cache
  std::vector<int64_t> tokens = {1, 2, 4, 8, 16, 64, 512};
  std::string only;  // rows whose name contains this; empty: all
};

// The expert kernels: matrix times few tokens against the read rate, times many against the arithmetic peak.
std::vector<BenchRow> bench_kernels(const BenchKernelsOptions& options, ProgressSink* progress = nullptr);

// Decode or prefill of a whole model, by component.
struct BenchModelOptions {
  std::filesystem::path model;
  EngineOptions engine;        // engine.sequences are decoded together
  int64_t prompt_tokens = 64;  // of each sequence, run at once, timed as prefill
  int64_t new_tokens = 16;     // steps, one after another, timed as decode
  uint64_t seed = 1;           // of the token ids
};

struct BenchComponent {
  std::string name;
  double seconds = 0;  // of one step
  uint64_t bytes = 0;  // of weights and state that a step must read
};

struct BenchModelResult {
  double load_seconds = 0;
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;        // of all sequences together, median over the steps
  double read_bytes_per_s = 0;           // this machine's, measured before and after every token, median
  double floor_seconds = 0;              // bytes of a token over that rate
  double floor_ratio = 0;                // floor over the time of a token: median of the tokens' ratios
  double ratio_low = 0, ratio_high = 0;  // quartiles
  double int8_relative_error = 0;        // what an int8 trunk changed, rms relative to the weights
  MemoryPlan plan;
  uint64_t peak_bytes = 0;  // resident at most (VmHWM), the probe's memory left out
  std::vector<BenchComponent> components;
  // With experts on the drive, of the decoded steps alone:
  std::optional<StreamReport> stream;
  double tokens = 0;        // decoded, all sequences
  double sequences = 0;     // in a step
  int64_t num_experts = 0;  // on the drive, of all layers
};

// Loads the model into memory and runs random token ids.
BenchModelResult bench_model(const BenchModelOptions& options, ProgressSink* progress = nullptr);
std::string format_bench(const BenchModelResult& result);

// A table for people.
std::string format_bench(const std::vector<BenchRow>& rows);

}  // namespace trefoil
