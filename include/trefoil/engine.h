// How a model is held and run for text: where its weights lie, how products are computed, how much memory may be used.
// Part of the public interface. docs/running.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trefoil/numerics.h"

namespace trefoil {

enum class ExpertPlacement {
  kAuto,    // in memory when everything fits the budget, else on the drive
  kMemory,  // all routed experts in memory; refused when they do not fit
  kDrive,   // read when they are used, through a cache of what the budget leaves
};

struct EngineOptions {
  Numerics numerics = Numerics::kBf16;
  KernelMode kernels = KernelMode::kExact;  // kReference: every weight is decoded from the mapped checkpoint
  TrunkForm trunk = TrunkForm::kBf16;
  ExpertPlacement experts = ExpertPlacement::kAuto;
  uint64_t memory_bytes = 0;  // for all of the process; 0: what this machine and its cgroups leave
  std::vector<std::filesystem::path> model_dirs =
      {};                          // copies of the checkpoint on other drives, which share the reads
  std::string read_mode = "auto";  // of the drive: auto, io_uring, pread, buffered
  bool lookahead = true;           // guess the next layer's experts while its attention runs
  int threads = 0;                 // 0: as many as this process may use
  int64_t context = 32'768;        // tokens that memory is set aside for, of each sequence
  int64_t sequences = 1;           // at the same time
  int64_t prefill_chunk = 512;     // prompt tokens run at once; memory and speed only
  uint64_t reserved_bytes = 0;     // that the caller wants left for itself
};

// What the process will have resident at most, part by part, before anything is loaded.
struct MemoryPlan {
  uint64_t budget_bytes = 0;
  uint64_t trunk_bytes = 0;    // everything but the routed experts
  uint64_t expert_bytes = 0;   // all of them in memory, or the cache's slots
  uint64_t state_bytes = 0;    // of all sequences, full
  uint64_t scratch_bytes = 0;  // activations of one chunk, by thread and shared
  uint64_t program_bytes = 0;  // code, headers, tokenizer, and what the caller reserved
  bool experts_in_memory = false;
  int64_t expert_slots = 0;  // of the cache
  std::string why;           // one sentence

  uint64_t total_bytes() const { return trunk_bytes + expert_bytes + state_bytes + scratch_bytes + program_bytes; }
};

// Where the time of streaming goes. Counters as stream/expert_store.h tells them.
struct StreamReport {
  std::string mode;  // "io_uring, O_DIRECT, ...; one aligned read of 13,418,496 bytes an expert"
  uint64_t hits = 0, late_hits = 0, misses = 0;
  uint64_t bytes_read = 0, bytes_used = 0, bytes_hinted = 0;
  double wait_seconds = 0;  // of the model for the drive
  double read_seconds = 0;  // with at least one read under way
};

}  // namespace trefoil
