// What a checkpoint needs before anything is started: its size in every storage, what a sequence costs, what fits which
// machine, and what quantizing it takes. From config, index and headers alone; no number here is measured, each says in
// a line how it comes about. docs/cli.md, "plan".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trefoil/error.h"
#include "trefoil/model_files.h"

namespace trefoil {

enum class PlanTask { kQuantize, kRun, kServe };
// "quantize", "run", "serve". Error(kInvalidArgument) listing these for anything else.
PlanTask parse_plan_task(std::string_view name);
const char* to_string(PlanTask task);

struct PlanOptions {
  ModelFiles files;
  PlanTask task = PlanTask::kRun;
  std::optional<uint64_t> memory_bytes;  // of this machine that may be used; absent: what it and its cgroups allow
  std::vector<std::string> hardware;     // more machines: "8x141GB GPU", "64-core 768GB"
  int64_t context = 32'768;              // tokens a sequence keeps
  int64_t sequences = 1;                 // at the same time
  double disk_gb_per_s = 6;              // assumed for machines that stream experts from disk
  int64_t num_calibration_samples = 512;
  int64_t max_seq_length = 2048;
  int threads = 0;  // of quantize; 0: every CPU this process may use
  // Of quantize: f32 matrix products of one core, as measured here; assumed for the cores of other machines too. 0: no
  // times are given.
  double gflops_per_core = 0;
};

// A number and where it comes from.
struct PlanLine {
  std::string name;
  uint64_t bytes = 0;
  std::string why;  // one sentence or formula
};

// The model with its routed experts stored in one way. Tensor bytes, headers excluded.
struct PlannedForm {
  std::string name;     // "as it is", "W3 dense", "W3 padded", "W4"
  std::string storage;  // "int3 dense, group 64"
  uint64_t packed_bytes = 0;
  uint64_t scale_bytes = 0;
  uint64_t shape_bytes = 0;
  uint64_t rest_bytes = 0;       // everything but the routed experts
  double bits_per_weight = 0;    // of the routed experts, scales included
  uint64_t bytes_per_token = 0;  // weights a decoded token touches at batch size 1
  std::string why;               // what it is good for and who loads it

  uint64_t expert_bytes() const { return packed_bytes + scale_bytes + shape_bytes; }
  uint64_t total_bytes() const { return expert_bytes() + rest_bytes; }
};

// One form on one machine.
struct FormFit {
  enum class Verdict {
    kFits,     // all of it in memory
    kStreams,  // everything but the routed experts in memory, those from disk through a cache
    kNo,
  };
  std::string form;
  Verdict verdict = Verdict::kNo;
  int64_t margin_bytes = 0;  // memory left; negative: short by so much (kStreams: short of holding everything)
  std::string why;
};

struct MachineFit {
  std::string machine;
  uint64_t memory_bytes = 0;
  std::vector<FormFit> forms;
};

struct ComputeEstimate {
  std::string name;
  double flop = 0;
  std::string why;
};

// Quantizing on one machine, or on several that share a folder ("4x768GB 64-core" are four).
struct QuantizeFit {
  std::string machine;
  bool fits = false;            // in the memory of each
  int64_t processes = 1;        // one a machine
  int64_t experts_at_once = 0;  // on each
  uint64_t peak_memory_bytes = 0;
  bool scratch_in_memory = false;  // the page cache can hold all activations beside the process
  double arithmetic_hours = 0;
  double disk_hours = 0;
  std::string why;
};

struct QuantizePlan {
  int64_t calibration_tokens = 0;
  std::vector<PlanLine> memory;  // what is resident at the worst moment, part by part
  uint64_t peak_memory_bytes = 0;
  std::vector<PlanLine> disk;  // read, written
  std::vector<ComputeEstimate> compute;
  uint64_t least_memory_bytes = 0;    // with which the job still runs, one expert and one row at a time
  bool fits_memory = false;           // the least in this machine's
  std::vector<QuantizeFit> machines;  // this one first; those with GPUs left out
};

struct PlanReport {
  std::string path;
  PlanTask task = PlanTask::kRun;
  std::vector<PlannedForm> forms;
  int64_t context = 0;
  int64_t sequences = 0;
  std::vector<PlanLine> sequence_state;  // per sequence, at `context` tokens
  uint64_t state_bytes = 0;              // of all sequences
  std::vector<MachineFit> machines;      // this one first
  std::optional<QuantizePlan> quantize;  // task kQuantize
  std::vector<std::string> notes;
};

// Errors as inspect(); kInvalidArgument for options that make no sense, naming them.
PlanReport plan(const PlanOptions& options);

std::string to_text(const PlanReport& report);
std::string to_json(const PlanReport& report);

}  // namespace trefoil
