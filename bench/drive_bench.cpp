// What the expert store gets out of a drive: its streamed rate against the drive's own, measured in turn in the same run
// with the same request sizes, number of reads at once and backend; and what hints save of the waiting time when there is
// something to compute meanwhile. bench/README.md says how to read it and holds results.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/page_buffer.h"
#include "base/splitmix64.h"
#include "checkpoint/safetensors.h"
#include "stream/direct_alignment.h"
#include "stream/drive_file.h"
#include "stream/expert_store.h"
#include "stream/pread_backend.h"
#include "stream/uring_backend.h"

namespace trefoil::bench {
namespace {

struct Arguments {
  std::string folder;
  int64_t layers = 2;
  int64_t experts = 64;
  int64_t latent = 3584;  // Kimi-K3's routed_expert_hidden_size
  int64_t inner = 3072;   // and moe_intermediate_size
  int32_t chosen = 16;    // experts of a step
  int steps = 16;         // of a measurement
  int slots = 64;
  int depth = 8;
  int repeats = 7;
  double compute_ms = 0;  // of a step, as if it multiplied; 0: as long as the drive takes for one
  std::string mode = "auto";
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- a checkpoint of experts alone, dense int3, as `trefoil quantize` lays it out ----

std::vector<TensorPlan> plan_of(const Arguments& arguments) {
  std::vector<TensorPlan> plan, shapes;
  for (int64_t layer = 0; layer < arguments.layers; ++layer) {
    for (int64_t expert = 0; expert < arguments.experts; ++expert) {
      for (const char* matrix : {"w1", "w2", "w3"}) {
        const bool is_down = matrix[1] == '2';
        const int64_t out = is_down ? arguments.latent : arguments.inner;
        const int64_t in = is_down ? arguments.inner : arguments.latent;
        const std::string module = fmt::format("model.layers.{}.block_sparse_moe.experts.{}.{}", layer, expert, matrix);
        plan.push_back({module + ".weight_packed", DType::kI32, {out, packed_words(3, in, PackedLayout::kDense)}});
        plan.push_back({module + ".weight_scale", DType::kBF16, {out, in / 64}});
        shapes.push_back({module + ".weight_shape", DType::kI64, {out, in}});
      }
    }
  }
  plan.insert(plan.end(), shapes.begin(), shapes.end());
  return plan;
}

void write_experts(const Arguments& arguments, const std::filesystem::path& folder) {
  std::vector<TensorPlan> plan = plan_of(arguments);
  std::vector<std::vector<int64_t>> shape_of;
  for (TensorPlan& tensor : plan) {
    shape_of.push_back(tensor.shape);
    if (tensor.dtype == DType::kI64) tensor.shape = {2};
  }
  SafetensorsWriter writer(folder / "model.safetensors", plan, 4096);
  SplitMix64 random(1);
  std::vector<uint64_t> noise;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].dtype == DType::kI64) {
      writer.write(plan[i].name, std::as_bytes(std::span(shape_of[i])));
      continue;
    }
    uint64_t bytes = 0;
    byte_size_of(plan[i].shape, plan[i].dtype, &bytes);
    noise.resize(bytes / sizeof(uint64_t) + 1);
    for (uint64_t& word : noise) word = random.next();
    writer.write(plan[i].name, std::as_bytes(std::span(noise)).first(bytes));
  }
  writer.commit();
}

ExpertLayout layout_of(const Arguments& arguments, const std::filesystem::path& folder) {
  ModelConfig config;
  config.num_hidden_layers = arguments.layers;
  config.num_experts = arguments.experts;
  return {{std::make_shared<const Checkpoint>(Checkpoint::open(folder, Checkpoint::Access::kRead))}, config};
}

// ---- the drive itself ----

// Reads whole experts in the given order, `depth` at once, and nothing else: bytes a second.
double drive_rate(const Arguments& arguments, const ExpertLayout& layout, ReadMode mode,
                  const std::vector<int64_t>& keys) {
  std::vector<DriveFile> files;
  for (const auto& path : layout.files()) files.emplace_back(path, mode != ReadMode::kBuffered);
  std::string refusal;
  std::unique_ptr<ReadBackend> backend = mode == ReadMode::kUringDirect
                                             ? make_uring_backend(arguments.depth, &refusal)
                                             : std::make_unique<PreadBackend>(arguments.depth);
  if (backend == nullptr) fail(ErrorCode::kUnsupported, "io_uring: {}", refusal);
  std::vector<PageBuffer> memory;
  std::vector<int> buffer;
  for (int i = 0; i < arguments.depth; ++i) {
    memory.emplace_back(layout.summary().slot_bytes);
    buffer.push_back(backend->add_buffer(memory.back().bytes()));
    std::fill(memory.back().bytes().begin(), memory.back().bytes().end(), std::byte{1});  // pages are there
  }
  const auto submit = [&](size_t i, size_t place) {
    const FileExtent& extent = layout.place(keys[i]).extents.front();
    const uint64_t begin = align_down(extent.offset);
    backend->submit({.id = place + 1,
                     .fd = files[layout.file(keys[i], extent)].fd(),
                     .offset = begin,
                     .into = memory[place].bytes().first(align_up(extent.offset + extent.size) - begin),
                     .buffer = buffer[place]});
  };
  const double start = seconds_now();
  size_t next = 0;
  uint64_t bytes = 0;
  for (size_t place = 0; place < memory.size() && next < keys.size(); ++place) submit(next++, place);
  std::vector<ReadCompletion> done;
  for (size_t ended = 0; ended < keys.size();) {
    done.clear();
    backend->wait(done);
    for (const ReadCompletion& completion : done) {
      if (completion.result <= 0) fail(ErrorCode::kIo, "a read of the drive's own rate failed: {}", completion.result);
      bytes += static_cast<uint64_t>(completion.result);
      ++ended;
      if (next < keys.size()) submit(next++, completion.id - 1);
    }
  }
  return static_cast<double>(bytes) / (seconds_now() - start);
}

// ---- the store ----

struct Streamed {
  double rate = 0;  // bytes of experts used a second
  double wait_seconds = 0;
};

using Steps = std::vector<std::vector<int32_t>>;  // of layers 0, 1, ..., 0, 1, ...

// Distinct experts over all steps of a layer while that is possible, so that nothing is found in RAM.
Steps make_steps(const Arguments& arguments, SplitMix64& random) {
  Steps steps;
  std::vector<std::vector<int32_t>> left(static_cast<size_t>(arguments.layers));
  for (int i = 0; i < arguments.steps; ++i) {
    std::vector<int32_t>& pool = left[static_cast<size_t>(i % arguments.layers)];
    std::vector<int32_t> step;
    while (static_cast<int32_t>(step.size()) < arguments.chosen) {
      if (pool.empty()) {
        pool.resize(static_cast<size_t>(arguments.experts));
        std::iota(pool.begin(), pool.end(), 0);
      }
      const size_t at = random.next() % pool.size();
      if (std::find(step.begin(), step.end(), pool[at]) == step.end()) step.push_back(pool[at]);
      pool[at] = pool.back();
      pool.pop_back();
    }
    std::sort(step.begin(), step.end());
    steps.push_back(step);
  }
  return steps;
}

Streamed stream(const Arguments& arguments, ExpertStore& store, const Steps& steps, bool hints,
                double compute_seconds) {
  const ExpertStoreCounters before = store.counters();
  const auto layer = [&](size_t i) { return static_cast<int64_t>(i) % arguments.layers; };
  const double start = seconds_now();
  for (size_t i = 0; i < steps.size(); ++i) {
    ExpertStore::Batch batch = store.begin(layer(i), steps[i]);
    if (hints && i + 1 < steps.size()) store.expect(layer(i + 1), steps[i + 1]);
    while (batch.remaining() > 0) {
      const ExpertLease lease = batch.next();
      if (compute_seconds > 0)
        std::this_thread::sleep_for(std::chrono::duration<double>(compute_seconds / arguments.chosen));
    }
  }
  const double elapsed = seconds_now() - start;
  const ExpertStoreCounters after = store.counters();
  return {static_cast<double>(after.bytes_used - before.bytes_used) / elapsed,
          after.wait_seconds - before.wait_seconds};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void report_row(const char* what, const std::vector<double>& rates, const std::vector<double>& of) {
  std::vector<double> percent;
  for (size_t i = 0; i < rates.size(); ++i) percent.push_back(100 * rates[i] / of[i]);
  const auto [least, most] = std::minmax_element(percent.begin(), percent.end());
  fmt::print("{:<44} {:>8.2f} {:>8.1f} {:>8.1f} ..{:>6.1f}\n", what, median(rates) / 1e9, median(percent), *least,
             *most);
}

void run(const Arguments& arguments) {
  const std::filesystem::path folder = std::filesystem::path(arguments.folder) / "trefoil-drive-bench";
  make_folder(folder);
  write_experts(arguments, folder);
  const auto make_store = [&] {
    ExpertStoreOptions options;
    const ExpertLayout layout = layout_of(arguments, folder);
    options.budget_bytes = static_cast<uint64_t>(arguments.slots) * layout.summary().slot_bytes;
    options.passing_slots = arguments.slots;  // nothing stays: every step reads all that it uses
    options.reader.depth = arguments.depth;
    options.reader.mode = *parse_read_mode(arguments.mode);
    return std::make_unique<ExpertStore>(layout_of(arguments, folder), options);
  };
  SplitMix64 random(2);
  const auto store = make_store();
  stream(arguments, *store, make_steps(arguments, random), true, 0);  // all slots have pages
  fmt::print("{}\n{} experts a step, {} steps, {} repeats in turn\n\n", store->report(), arguments.chosen,
             arguments.steps, arguments.repeats);
  const ReadMode mode = store->report().starts_with("io_uring")                 ? ReadMode::kUringDirect
                        : store->report().find("O_DIRECT") != std::string::npos ? ReadMode::kPreadDirect
                                                                                : ReadMode::kBuffered;
  std::vector<double> drive, plain, hinted, waited, waited_hinted;
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
    const Steps steps = make_steps(arguments, random);
    std::vector<int64_t> keys;
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const int32_t expert : steps[i])
        keys.push_back(store->layout().key(static_cast<int64_t>(i) % arguments.layers, expert));
    }
    const double before = drive_rate(arguments, store->layout(), mode, keys);
    plain.push_back(stream(arguments, *store, steps, false, 0).rate);
    hinted.push_back(stream(arguments, *store, make_steps(arguments, random), true, 0).rate);
    drive.push_back((before + drive_rate(arguments, store->layout(), mode, keys)) / 2);
    const double compute = arguments.compute_ms > 0 ? arguments.compute_ms / 1e3
                                                    : static_cast<double>(store->layout().summary().tensor_bytes) *
                                                          arguments.chosen / before;
    waited.push_back(stream(arguments, *store, make_steps(arguments, random), false, compute).wait_seconds);
    waited_hinted.push_back(stream(arguments, *store, make_steps(arguments, random), true, compute).wait_seconds);
  }
  fmt::print("{:<44} {:>8} {:>8} {:>8}\n", "", "GB/s", "% drive", "spread");
  report_row("the drive itself, the same reads", drive, drive);
  report_row("the store, a step after the other", plain, drive);
  report_row("the store, the next step hinted", hinted, drive);
  fmt::print(
      "\nwaiting with as much to compute: {:.3f} s without hints, {:.3f} s with the next step hinted: {:.0f} % less\n",
      median(waited), median(waited_hinted), 100 * (1 - median(waited_hinted) / median(waited)));
  const ExpertStoreCounters counters = store->counters();
  fmt::print("hits {}, late hits {}, misses {}; hints {}, dropped {}; GB hinted {:.2f}, read {:.2f}, used {:.2f}\n",
             counters.hits, counters.late_hits, counters.misses, counters.hints, counters.hints_dropped,
             static_cast<double>(counters.bytes_hinted) / 1e9, static_cast<double>(counters.bytes_read) / 1e9,
             static_cast<double>(counters.bytes_used) / 1e9);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trefoil::bench

int main(int argc, char** argv) {
  trefoil::bench::Arguments arguments;
  CLI::App app("The expert store's streamed rate against the drive's own, and what hints save");
  app.add_option("--folder", arguments.folder, "on the drive to measure; a file of all experts is made there")
      ->required();
  app.add_option("--layers", arguments.layers);
  app.add_option("--experts", arguments.experts, "of a layer");
  app.add_option("--latent", arguments.latent);
  app.add_option("--inner", arguments.inner);
  app.add_option("--chosen", arguments.chosen, "experts of a step");
  app.add_option("--steps", arguments.steps);
  app.add_option("--slots", arguments.slots, "experts that the budget holds");
  app.add_option("--depth", arguments.depth, "reads at once");
  app.add_option("--repeats", arguments.repeats);
  app.add_option("--compute-ms", arguments.compute_ms, "of a step; 0: as long as the drive takes for one");
  app.add_option("--mode", arguments.mode)->check(CLI::IsMember({"auto", "io_uring", "pread", "buffered"}));
  CLI11_PARSE(app, argc, argv);
  try {
    trefoil::bench::run(arguments);
  } catch (const trefoil::Error& error) {
    fmt::print(stderr, "drive_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
