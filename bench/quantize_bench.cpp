// Time of one routed expert by phase, at Kimi-K3's widths or any others: seconds, arithmetic, and percent of what this
// machine's matrix product reaches on the same threads in the same minutes. Experts run side by side, one per thread, as
// in `trefoil quantize`. bench/README.md says how to read it and holds results.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "model/model.h"
#include "quantize/linalg.h"
#include "quantize/phase_times.h"
#include "quantize/quantized_matrix.h"
#include "synthetic_layer.h"
#include "tensor/bf16.h"
#include "tensor/packed_int.h"

namespace trefoil::bench {
namespace {

struct Arguments {
  LayerSize size;
  int threads = 2;
  int repeats = 1;
  int64_t ceiling_size = 2048;
  uint64_t seed = 1;
  std::string recipe = "trefoil";
  bool plain = false;
  bool zero_mask = false;
  std::string write;  // a safetensors file for tests/reference/gptq_reference.py
};

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What sgemm reaches with every thread at work, in f32 GFLOP per CPU second, all threads together.
double measure_ceiling(const Arguments& arguments, ThreadPool& pool) {
  constexpr int kProducts = 6;
  const int64_t n = arguments.ceiling_size;
  std::vector<double> rate(static_cast<size_t>(arguments.threads));
  pool.parallel_for(arguments.threads, [&](int64_t thread) {
    const std::vector<float> a(static_cast<size_t>(n * n), 1.0f), b(a);
    std::vector<float> c(a.size());
    double start = 0;
    for (int i = 0; i <= kProducts; ++i) {
      if (i == 1) start = thread_seconds();  // the first one warms up
      gemm(Transpose::kNo, Transpose::kNo, n, n, n, 1.0f, a.data(), n, b.data(), n, 0.0f, c.data(), n);
    }
    rate[static_cast<size_t>(thread)] = kProducts * product_flops(n, n, n) / (thread_seconds() - start) / 1e9;
  });
  return std::accumulate(rate.begin(), rate.end(), 0.0);
}

struct Run {
  std::vector<ExpertResult> experts;
  ExpertTimes times;
  double wall = 0;
};

Run quantize_experts(const SyntheticLayer& layer, const QuantizeOptions& options, ThreadPool& pool) {
  Run run;
  run.experts.resize(static_cast<size_t>(pool.num_threads()));
  const LayerInputs inputs = layer.inputs(options);
  const double start = wall_seconds();
  pool.parallel_for(pool.num_threads(), [&](int64_t i) {
    run.experts[static_cast<size_t>(i)] = quantize_expert(inputs, i, layer.expert(i), layer.tokens());
  });
  run.wall = wall_seconds() - start;
  for (const ExpertResult& expert : run.experts) run.times += expert.times;
  return run;
}

void print_line(const std::string& name, const PhaseCost& cost, int threads, double ceiling) {
  if (cost.seconds == 0) return;
  const double rate = cost.flops / cost.seconds / 1e9 * threads;
  fmt::print("{:<22} {:>9.3f} {:>9.4f}", name, cost.seconds / threads, cost.flops / threads / 1e12);
  if (cost.flops > 0) {
    fmt::print(" {:>9.1f} {:>8.1f}\n", rate, 100 * rate / ceiling);
  } else {
    fmt::print(" {:>9} {:>8}\n", "-", "-");
  }
}

bool is_solve(Phase phase) {
  return phase != Phase::kDecode && phase != Phase::kGather && phase != Phase::kForward && phase != Phase::kEncode;
}

PhaseCost solve_and_hessian(const ExpertTimes& times) {
  PhaseTimes sum;
  for (const Phase phase : kPhases) {
    if (!is_solve(phase)) continue;
    sum.add(phase, times.gate_up[phase]);
    sum.add(phase, times.down[phase]);
  }
  return sum.total();
}

void print_table(const Run& run, double ceiling) {
  const auto threads = static_cast<int>(run.experts.size());
  fmt::print("{:<22} {:>9} {:>9} {:>9} {:>8}\n", "phase, per expert", "CPU s", "TFLOP", "GFLOP/s", "% of top");
  for (const Phase phase : kPhases) {
    print_line(fmt::format("w1+w3 {}", to_string(phase)), run.times.gate_up[phase], threads, ceiling);
  }
  for (const Phase phase : kPhases) {
    print_line(fmt::format("w2    {}", to_string(phase)), run.times.down[phase], threads, ceiling);
  }
  PhaseTimes all = run.times.gate_up;
  all += run.times.down;
  print_line("solve and Hessian", solve_and_hessian(run.times), threads, ceiling);
  print_line("whole expert", all.total(), threads, ceiling);
}

void print_losses(const ExpertResult& expert) {
  for (const MatrixRecord& record : expert.record) {
    fmt::print("{}: loss {:.6e}, relative {:.6f}, weight error {:.6f}, output error {:.6f}, rounds {}\n",
               to_string(record.part), record.loss, record.relative_error, record.weight_error, record.output_error,
               record.rounds_kept);
  }
}

std::vector<uint16_t> to_bf16(std::span<const float> values) {
  std::vector<uint16_t> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), f32_to_bf16);
  return out;
}

std::vector<float> decode(const EncodedLinear& encoded, const QuantizeOptions& options, int64_t rows, int64_t cols) {
  QuantizedMatrix matrix{rows, cols, options.group_size, options.num_bits, {}, {}};
  matrix.codes.resize(static_cast<size_t>(rows * cols));
  matrix.scale.resize(static_cast<size_t>(rows * cols / options.group_size));
  std::memcpy(matrix.scale.data(), encoded.scale.data(), encoded.scale.size());
  const int64_t width = packed_words(options.num_bits, cols, PackedLayout::kDense);
  std::vector<uint32_t> words(static_cast<size_t>(width));
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(words.data(), encoded.packed.data() + row * width * 4, words.size() * 4);
    unpack_row(options.num_bits, PackedLayout::kDense, words,
               std::span(matrix.codes).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols)));
  }
  return dequantize(matrix);
}

// The expert's weights before and after, and the inputs of its matrices, all in bf16.
void write_expert(const SyntheticLayer& layer, const QuantizeOptions& options, const ExpertResult& solved,
                  const Arguments& arguments) {
  const LayerSize& size = arguments.size;
  std::vector<TensorPlan> plan;
  std::vector<std::vector<uint16_t>> data;
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols, std::span<const float> values) {
    plan.push_back({name, DType::kBF16, {rows, cols}});
    data.push_back(to_bf16(values));
  };
  std::array<std::vector<float>, 3> weight;
  for (ExpertPart part : kExpertParts) {
    const auto at = static_cast<size_t>(part);
    const StoredLinear& stored = layer.expert(0).part(part);
    weight[at].resize(static_cast<size_t>(stored.out_features * stored.in_features));
    decode_linear(layer.checkpoint(), stored, 0, stored.out_features, weight[at]);
    add(fmt::format("{}.weight", to_string(part)), stored.out_features, stored.in_features, weight[at]);
    add(fmt::format("{}.{}", to_string(part), to_string(options.recipe)), stored.out_features, stored.in_features,
        decode(solved.encoded[at], options, stored.out_features, stored.in_features));
  }
  std::vector<float> latent(static_cast<size_t>(size.tokens * size.latent));
  layer.latent().read(0, latent);
  std::vector<float> hidden(static_cast<size_t>(size.tokens * size.inner));
  expert_hidden({weight[0], weight[2], size.latent, size.inner}, layer.config(), options.numerics, latent, size.tokens,
                hidden);
  add("latent", size.tokens, size.latent, latent);
  add("hidden", size.tokens, size.inner, hidden);
  SafetensorsWriter writer(arguments.write, plan);
  for (size_t i = 0; i < plan.size(); ++i) writer.write(plan[i].name, std::as_bytes(std::span(data[i])));
  writer.commit();
}

QuantizeOptions options_of(const Arguments& arguments) {
  QuantizeOptions options;
  options.recipe = arguments.recipe == "stock" ? QuantizeRecipe::kStock : QuantizeRecipe::kTrefoil;
  options.stock_zero_mask = arguments.zero_mask;
  if (arguments.plain) options.tuning.w2_sequential = false;  // w2's loss then has the same inputs in every recipe
  return options;
}

void run(Arguments arguments) {
  arguments.size.experts = arguments.threads;
  linalg_init();
  ThreadPool pool(arguments.threads);
  const bool whole = arguments.recipe == "trefoil" && !arguments.plain;
  const SyntheticLayer layer(arguments.size, whole ? Evidence::kWhole : Evidence::kPlain, arguments.seed, pool);
  const QuantizeOptions options = options_of(arguments);
  fmt::print("recipe {}, {} tokens, latent {}, inner {}, {} experts on {} threads\n{}\n", arguments.recipe,
             arguments.size.tokens, arguments.size.latent, arguments.size.inner, arguments.threads, arguments.threads,
             linalg_description());
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
    const double before = measure_ceiling(arguments, pool);
    const Run measured = quantize_experts(layer, options, pool);
    const double after = measure_ceiling(arguments, pool);
    const double ceiling = (before + after) / 2;
    print_table(measured, ceiling);
    fmt::print("top: sgemm {:.1f} GFLOP/s before, {:.1f} after; wall {:.2f} s, {:.2f} s an expert\n", before, after,
               measured.wall, measured.wall / arguments.threads);
    print_losses(measured.experts.front());
    if (repeat == 0 && !arguments.write.empty()) write_expert(layer, options, measured.experts.front(), arguments);
  }
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  fmt::print("peak resident {:.2f} GiB\n", static_cast<double>(usage.ru_maxrss) / (1 << 20));
}

}  // namespace
}  // namespace trefoil::bench

int main(int argc, char** argv) {
  trefoil::bench::Arguments arguments;
  CLI::App app("Time of one routed expert by phase");
  app.add_option("--tokens", arguments.size.tokens, "calibration tokens of each expert");
  app.add_option("--latent", arguments.size.latent, "columns of w1 and w3, rows of w2");
  app.add_option("--inner", arguments.size.inner, "rows of w1 and w3, columns of w2");
  app.add_option("--threads", arguments.threads, "experts side by side");
  app.add_option("--repeats", arguments.repeats, "measurements, one table each");
  app.add_option("--ceiling-size", arguments.ceiling_size, "size of the square products that measure the machine");
  app.add_option("--seed", arguments.seed);
  app.add_option("--recipe", arguments.recipe)->check(CLI::IsMember({"trefoil", "stock"}));
  app.add_flag("--plain", arguments.plain, "trefoil without token weights, second stream and output metric");
  app.add_flag("--stock-zero-mask", arguments.zero_mask, "stock: as `trefoil quantize --stock-zero-mask`");
  app.add_option("--write", arguments.write, "write weights, inputs and results for tests/reference/gptq_reference.py");
  CLI11_PARSE(app, argc, argv);
  try {
    trefoil::bench::run(arguments);
  } catch (const trefoil::Error& error) {
    fmt::print(stderr, "quantize_bench: {}\n", error.what());
    return 1;
  }
}
