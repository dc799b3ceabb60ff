// quantization_report.json: what was done to every matrix, from what, with what. Its summary as Markdown for the model
// card, and as a page with figures for people. Facts only come in here; nothing is computed from the weights.
// docs/quantization.md, "The report".
//
// Times are in the JSON and in the page and nowhere else in the output, so two runs differ only there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "quantize/calibration.h"
#include "quantize/phase_times.h"
#include "quantize/source_experts.h"
#include "quantize/walk_steps.h"
#include "trefoil/quantize.h"

namespace trefoil {

// One Linear.
struct MatrixRecord {
  int64_t expert = 0;
  ExpertPart part = ExpertPart::kW1;
  int64_t tokens = 0;          // calibration tokens the expert saw
  double n_eff = 0;            // (sum c)^2 / sum c^2 of their weights
  double shrinkage = 0;        // lambda: share of the layer's Hessian in the one used
  double damping = 0;          // fraction of the mean diagonal that was added, after any escalation
  double loss = 0;             // tr((W - Q) H (W - Q)^T) per token, H as used and undamped
  double relative_error = 0;   // loss / tr(W H W^T); weight_error without inputs (kRtn, no tokens)
  double weight_error = 0;     // |W - Q|^2 / |W|^2
  double output_error = 0;     // two-sided solves: tr(G E H E^T) / tr(G W H W^T), else 0
  int64_t dead_columns = 0;    // inputs that were always zero
  int rounds_kept = 0;         // refinement rounds that lowered the loss
  double negative_scales = 0;  // share of groups with a negative scale
  std::string fallback;        // empty, or what was done instead of the recipe and why
};

struct LayerRecord {
  int64_t layer = 0;
  int64_t tokens = 0;
  std::vector<int64_t> tokens_per_expert;
  std::vector<MatrixRecord> matrices;  // experts ascending, w1 w2 w3
  ExpertTimes times;                   // CPU time of the solver

  int64_t thin_experts(int64_t columns) const;  // experts with fewer than `columns` tokens
  int64_t experts_without_tokens() const;
};

// A step of the walk over the layers, or the copying.
struct StepRecord {
  StepKind kind = StepKind::kEmbedding;
  int64_t layer = -1;  // -1: of none
  double seconds = 0;  // that its units took, over all processes and runs
  double gflop = 0;    // as planned; 0: not counted
};

struct ShardRecord {
  std::string file;
  uint64_t bytes = 0;
  std::string header_sha256;  // of the 8 + N header bytes
  int64_t modified = 0;       // when the file was changed last, in the file system's own ticks; not reported
};

struct SourceRecord {
  std::string folder;  // its last name only
  std::string config_sha256;
  std::string index_sha256;  // empty for a single-file checkpoint
  std::vector<ShardRecord> shards;
  uint64_t tensor_bytes = 0;
};

struct EnvironmentRecord {
  std::string version;  // of trefoil
  std::string compiler;
  std::string blas;  // OpenBLAS' own description: version and the kernels it runs
  std::string isa;   // of our own kernels
  int threads = 0;
};

struct QuantizeReport {
  EnvironmentRecord environment;
  SourceRecord source;
  QuantizeOptions options;
  CalibrationSet calibration;
  int64_t latent = 0;  // input columns of w1 and w3
  int64_t inner = 0;   // input columns of w2
  std::vector<LayerRecord> layers;
  std::vector<StepRecord> steps;
  uint64_t output_tensor_bytes = 0;
  double bits_per_weight = 0;
  double seconds = 0;
  uint64_t planned_memory_bytes = 0;  // resident at most, by the formulas of plan
  uint64_t peak_memory_bytes = 0;     // of the process that finished the output (VmHWM)
  uint64_t planned_scratch_bytes = 0;
  uint64_t peak_scratch_bytes = 0;  // disk space the activations took at the most, seen at the end of a layer

  bool is_calibrated() const { return options.recipe != QuantizeRecipe::kRtn; }
};

// The totals of a report.
QuantizeSummary summarize(const QuantizeReport& report);

// The experts with the fewest tokens among those with fewer than `columns`, at most `limit` of them.
struct ThinExpert {
  int64_t tokens = 0;
  int64_t layer = 0;
  int64_t expert = 0;
  bool operator<(const ThinExpert& other) const {
    return std::tie(tokens, layer, expert) < std::tie(other.tokens, other.layer, other.expert);
  }
};
std::vector<ThinExpert> thinnest_experts(const std::vector<LayerRecord>& layers, int64_t columns, size_t limit);

// Keys in a fixed order; containers of plain values on one line, so that a matrix is a line.
std::string report_json(const QuantizeReport& report);
// Self-contained, like eval's: loss by layer and kind, tokens of experts, fallbacks, time by step and phase, planned
// against used, calibration, provenance.
std::string report_html(const QuantizeReport& report);
// A few tables for people: settings, calibration, errors by kind, thin experts, fallbacks.
std::string report_markdown(const QuantizeReport& report);
// Planned against used, for the person who ran the job: it differs from run to run and is in no file but the report.
std::string resources_markdown(const QuantizeReport& report);
// Where the output is and the commands that come next.
std::string next_steps_text(const QuantizeReport& report);
// The tables again, with front matter and how to check the files.
std::string model_card(const QuantizeReport& report);

}  // namespace trefoil
