// The `quantize` command as a library: a Kimi-K3 checkpoint with MXFP4 routed experts in, a calibrated pack-quantized
// checkpoint out. docs/quantization.md says what the recipes do, docs/formats.md what the output folder holds.
//
// Promises
//   - Only routed experts change. Every other tensor, and every side file except config.json, is byte-identical.
//   - Nothing appears under a final name before everything was written, re-opened and checked. A run that is stopped,
//     killed or refused by the disk leaves what it finished in the output folder's .trefoil-partial; the same call goes
//     on there and ends with the same bytes. Another setting is refused by name.
//   - The same source, options and calibration give the same shards, byte for byte, whatever the number of threads or
//     processes and the memory budget.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trefoil/error.h"
#include "trefoil/numerics.h"
#include "trefoil/progress.h"

namespace trefoil {

// How codes and scales are chosen.
//   kTrefoil  the default: routed tokens weighted by what they do to the output, shrunk Hessians, signed scales, w2
//   behind
//             quantized w1 and w3, refinement rounds kept where the exact loss drops
//   kStock    the published recipe, as llm-compressor 0.12.0.1 runs it
//   kRtn      round to nearest with the published recipe's scales; reads no text
enum class QuantizeRecipe { kTrefoil, kStock, kRtn };
const char* to_string(QuantizeRecipe recipe);

// The knobs of the trefoil recipe. The defaults are the recipe; docs/quantization.md says what each was measured to do.
struct TrefoilTuning {
  double shrinkage = 1.0;      // k in lambda = d / (d + k n_eff), d the input width; a large k means no shrinkage
  double target_alpha = 0.5;   // how far the target moves to undo the drift of the inputs, in [0, 1], times 1 - lambda;
                               // 0 needs no second stream
  int refine_rounds = 3;       // rounds of scale update and code descent, each kept only if the exact loss drops
  bool gate_weighting = true;  // weight token t by p^2 / rms(u_t)^2 instead of 1
  bool output_metric = true;   // weigh errors of w2's outputs by what routed_expert_up_proj makes of them
  bool w2_sequential = true;   // w2 sees the outputs of the quantized w1 and w3 instead of the original ones
  bool operator==(const TrefoilTuning&) const = default;
};

// A file to calibrate on (docs/formats.md, "Documents"), or a frozen set (docs/formats.md, "Frozen calibration").
struct CalibrationSource {
  // Implicit: a path alone is a source.
  // NOLINTNEXTLINE(google-explicit-constructor)
  CalibrationSource(std::filesystem::path path, std::optional<double> share = {})
      : file(std::move(path)), weight(share) {}

  std::filesystem::path file;
  // Its share of the rows, over the sum of all weights; positive. Where one file has a weight, others without have 1.
  // Where none has, the documents of all files are one pool.
  std::optional<double> weight;
};

struct QuantizeOptions {
  enum class Layout { kDense, kPadded };  // compressed-tensors 0.18 and later | 0.17.x
  enum class Scales { kAny, kPositive };  // kAny lets the trefoil recipe choose negative scales
  struct LayerRange {                     // decoder layers [begin, end)
    int64_t begin = 0;
    int64_t end = 0;
  };

  std::filesystem::path source;
  std::filesystem::path output;
  std::vector<CalibrationSource> calibration;  // none for kRtn
  int64_t num_calibration_samples = 512;       // rows; fewer when the text is shorter, and the report says so
  int64_t max_seq_length = 2048;               // tokens of every row

  std::filesystem::path save_calibration;       // write the rows there as a frozen set, also in a dry run
  std::vector<std::filesystem::path> held_out;  // texts for judging: does the calibration hold passages of them?
  bool refuse_overlap = false;                  // if so, Error(kInvalidArgument) instead of a note

  QuantizeRecipe recipe = QuantizeRecipe::kTrefoil;
  int num_bits = 3;                 // 2, 3, 4 or 8
  int64_t group_size = 64;          // must divide both input widths of an expert
  double dampening_frac = 0.01;     // of the mean Hessian diagonal
  std::string actorder = "static";  // "static" (alias "weight"); every other order is refused by name
  Layout layout = Layout::kDense;
  Scales scales = Scales::kAny;
  bool stock_zero_mask = false;  // kStock: no error compensation on zero weights, as 0.12.0.1 does
  TrefoilTuning tuning;          // kTrefoil

  uint64_t seed = 0;                    // which documents, in which order
  int threads = 0;                      // 0: every CPU this process may use
  Numerics numerics = Numerics::kBf16;  // of the calibration's forward pass

  // Stop after layer end - 1 and quantize only these. The output is then a part, not a checkpoint: the shards that hold
  // these layers and the report, without index and config.json.
  std::optional<LayerRange> layers;
  bool dry_run = false;  // every check and the sizes; writes nothing but save_calibration
  // Most memory the process may use; 0: what the machine gives. Results do not depend on it. docs/quantization.md, "Cost".
  uint64_t memory_bytes = 0;
  // Where the activations of the calibration text lie while the job runs; empty: in the output folder.
  std::filesystem::path work_dir;
  // Several processes, started with the same options, do one job: each joins those at work in the output folder.
  bool join = false;
  // This process's place among those that a launcher started together (trefoil/mpi_rank.h), all with `join`: where it
  // begins in every step. Rank 0 finishes the output and notes what concerns all.
  struct Place {
    int rank = 0;  // [0, size)
    int size = 1;
  };
  Place place;
  // Returns once every rank has called it; empty where nobody is waited for. Called once, when this process has taken
  // its place in the job and before it works, so that no rank comes to an output that the others have finished.
  std::function<void()> meet;
  // Refuse to start anew: there must be an interrupted run to go on with.
  bool resume = false;
  // Replace an output this program wrote, or an interrupted run with other settings. Without it a folder that is not empty is refused; with it too, if it holds
  // files that are not part of such an output.
  bool overwrite = false;

  const std::atomic<bool>* stop = nullptr;  // set it to make quantize() throw Error(kCancelled) soon
};

// What was done, or with dry_run would be.
struct QuantizeSummary {
  uint64_t source_bytes = 0;   // tensor bytes of the source
  uint64_t output_bytes = 0;   // tensor bytes of the output
  double bits_per_weight = 0;  // of the routed experts, scales included
  int64_t calibration_rows = 0;
  int64_t calibration_tokens = 0;
  int64_t layers = 0;        // MoE layers quantized
  int64_t matrices = 0;      // Linears quantized
  int64_t fallbacks = 0;     // Linears that did not get the recipe's own treatment; the report lists them
  int64_t thin_experts = 0;  // experts with fewer tokens than input columns
  int64_t experts_without_tokens = 0;
  double relative_error_w1 = 0;  // mean over experts of loss / loss of an all-zero weight
  double relative_error_w2 = 0;
  double relative_error_w3 = 0;
  double seconds = 0;
  std::string markdown;  // the summary that goes into the model card
};

// Does it all. Errors: kInvalidArgument for options that contradict each other or the source, before any work;
// kUnsupported / kCorrupt / kNotFound for a source that cannot be quantized, naming the field or tensor; kOverBudget
// when the disk is too small; kIo; kCancelled. `progress` may be null.
QuantizeSummary quantize(const QuantizeOptions& options, ProgressSink* progress = nullptr);

}  // namespace trefoil
