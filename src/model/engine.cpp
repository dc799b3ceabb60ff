#include "model/engine.h"

#include <algorithm>

#include "base/error.h"
#include "model/checkpoint_weights.h"
#include "plan/machine.h"

namespace trefoil {
namespace {

constexpr double kShareOfFree = 0.95;  // of what the machine has free; the rest is for everybody else

// One arithmetic for every token, alone or in a chunk: neither the chunk size nor batch mates can matter.
ForwardOptions forward_options(const EngineOptions& options) {
  return {.numerics = options.numerics,
          .kda = KdaForm::kRecurrent,
          .mla = MlaForm::kAbsorbed,
          .kernels = options.kernels,
          .lookahead = options.lookahead};
}

uint64_t free_memory() {
  const MachineMemory memory = read_machine_memory();
  uint64_t free = memory.available_bytes;
  if (memory.limit_bytes() > 0) free = std::min(free, memory.limit_bytes());
  return static_cast<uint64_t>(kShareOfFree * static_cast<double>(free));
}

std::vector<std::shared_ptr<const Checkpoint>> open_copies(std::shared_ptr<const Checkpoint> first,
                                                           const std::vector<std::filesystem::path>& others) {
  std::vector<std::shared_ptr<const Checkpoint>> copies = {std::move(first)};
  for (const std::filesystem::path& folder : others) {
    copies.push_back(std::make_shared<const Checkpoint>(Checkpoint::open(folder, Checkpoint::Access::kRead)));
  }
  return copies;
}

DriveReaderOptions reader_options(const EngineOptions& options) {
  const std::optional<ReadMode> mode = parse_read_mode(options.read_mode);
  if (!mode) {
    fail(ErrorCode::kInvalidArgument, "read mode '{}' is none of auto, io_uring, pread, buffered", options.read_mode);
  }
  return {.mode = *mode};
}

}  // namespace

Engine::Engine(const std::filesystem::path& folder, const EngineOptions& options)
    : options_(options),
      config_(load_model_config(folder)),
      // Mapped pages would count as the process's own; what is held in memory is read.
      checkpoint_(std::make_shared<const Checkpoint>(
          Checkpoint::open(folder, !decodes_weights(options) || options.experts == ExpertPlacement::kDrive
                                       ? Checkpoint::Access::kRead
                                       : Checkpoint::Access::kMapped))),
      pool_(options.threads > 0 ? options.threads : usable_cpus()) {
  const bool resident_forms = !decodes_weights(options_);
  plan_ = plan_memory(config_, *checkpoint_, options_, free_memory());
  if (!plan_.experts_in_memory && (resident_forms || options_.experts == ExpertPlacement::kDrive)) {
    ExpertLayout layout(open_copies(checkpoint_, options_.model_dirs), config_);
    store_ = std::make_shared<ExpertStore>(
        std::move(layout), ExpertStoreOptions{.budget_bytes = plan_.expert_bytes, .reader = reader_options(options_)});
  }
  std::shared_ptr<const WeightSource> weights;
  std::shared_ptr<const ResidentWeights> resident;
  if (resident_forms) {
    resident = std::make_shared<ResidentWeights>(
        checkpoint_, ResidentWeights::Options{.trunk = options_.trunk, .experts = store_ == nullptr}, pool_);
    weights = resident;
  } else {
    weights = std::make_shared<CheckpointWeights>(checkpoint_);
  }
  model_ = std::make_unique<Model>(config_, weights, forward_options(options_), pool_, store_);
  if (resident != nullptr) resident_ = resident->report();
}

std::optional<StreamReport> Engine::stream_report() const {
  if (store_ == nullptr) return std::nullopt;
  const ExpertStoreCounters counters = store_->counters();
  return StreamReport{.mode = store_->report(),
                      .hits = counters.hits,
                      .late_hits = counters.late_hits,
                      .misses = counters.misses,
                      .bytes_read = counters.bytes_read,
                      .bytes_used = counters.bytes_used,
                      .bytes_hinted = counters.bytes_hinted,
                      .wait_seconds = counters.wait_seconds,
                      .read_seconds = counters.read_seconds};
}

}  // namespace trefoil
