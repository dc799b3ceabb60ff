// quantization_report.json: what was done to every matrix, from what, with what. And its summary as Markdown for the
// model card. Facts only come in here; nothing is computed from the weights. docs/quantization.md, "The report".
//
// Times are in the report and nowhere else in the output, so two runs differ only there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "quantize/calibration.h"
#include "quantize/source_experts.h"
#include "trefoil/quantize.h"

namespace trefoil {

inline constexpr const char* kReportFile = "quantization_report.json";

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
  double seconds = 0;
  int64_t tokens = 0;
  std::vector<int64_t> tokens_per_expert;
  std::vector<MatrixRecord> matrices;  // experts ascending, w1 w2 w3

  int64_t thin_experts(int64_t columns) const;  // experts with fewer than `columns` tokens
  int64_t experts_without_tokens() const;
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
  uint64_t output_tensor_bytes = 0;
  double bits_per_weight = 0;
  double seconds = 0;
  uint64_t planned_memory_bytes = 0;  // resident at most, by the formulas of plan
  uint64_t peak_memory_bytes = 0;     // of the process that finished the output (VmHWM)
  uint64_t planned_scratch_bytes = 0;
  uint64_t peak_scratch_bytes = 0;  // disk space the activations took at the most, seen at the end of a layer
};

// The totals of a report.
QuantizeSummary summarize(const QuantizeReport& report);

// Keys in a fixed order; containers of plain values on one line, so that a matrix is a line.
std::string report_json(const QuantizeReport& report);
// A few tables for people: settings, calibration, errors by kind, thin experts, fallbacks.
std::string report_markdown(const QuantizeReport& report);
// Planned against used, for the person who ran the job: it differs from run to run and is in no file but the report.
std::string resources_markdown(const QuantizeReport& report);
// The same with front matter and how to check the files.
std::string model_card(const QuantizeReport& report);

}  // namespace trefoil
