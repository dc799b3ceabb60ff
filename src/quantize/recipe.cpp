#include "quantize/recipe.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace trefoil {
namespace {

void require(bool holds, const std::string& message) {
  if (!holds) fail(ErrorCode::kInvalidArgument, "{}", message);
}

void check_actorder(const std::string& actorder) {
  if (actorder == "static" || actorder == "weight") return;
  fail(ErrorCode::kInvalidArgument,
       "actorder {}: only static is supported (group would need a g_idx tensor, which loaders are dropping)",
       actorder.empty() ? "(empty)" : actorder);
}

void check_numbers(const QuantizeOptions& options) {
  const int bits = options.num_bits;
  require(bits == 2 || bits == 3 || bits == 4 || bits == 8, fmt::format("--bits {}: 2, 3, 4 or 8", bits));
  require(options.group_size > 0, fmt::format("--group-size {}: must be positive", options.group_size));
  require(options.num_calibration_samples > 0,
          fmt::format("--num-calibration-samples {}: must be positive", options.num_calibration_samples));
  for (const CalibrationSource& source : options.calibration) {
    require(!source.weight || (std::isfinite(*source.weight) && *source.weight > 0),
            fmt::format("{}: weight {}: must be positive", source.file.string(), source.weight.value_or(0)));
  }
  require(options.max_seq_length > 0, fmt::format("--max-seq-length {}: must be positive", options.max_seq_length));
  require(options.dampening_frac > 0 && options.dampening_frac < 1,
          fmt::format("--dampening-frac {}: must lie between 0 and 1", options.dampening_frac));
  require(options.threads >= 0, fmt::format("threads {}: 0 (all) or more", options.threads));
  const QuantizeOptions::Place& place = options.place;
  require(0 <= place.rank && place.rank < place.size && (place.size == 1 || options.join),
          fmt::format("rank {} of {}: expected 0 to size - 1, and join", place.rank, place.size));
  if (options.layers) {
    require(
        options.layers->begin >= 0 && options.layers->begin < options.layers->end,
        fmt::format("layers {}:{}: must be a range A:B with 0 <= A < B", options.layers->begin, options.layers->end));
  }
}

void check_tuning(const TrefoilTuning& tuning) {
  require(std::isfinite(tuning.shrinkage) && tuning.shrinkage > 0,
          fmt::format("shrinkage {}: must be positive", tuning.shrinkage));
  require(tuning.target_alpha >= 0 && tuning.target_alpha <= 1,
          fmt::format("target_alpha {}: must lie in [0, 1]", tuning.target_alpha));
  require(tuning.refine_rounds >= 0, fmt::format("refine_rounds {}: 0 or more", tuning.refine_rounds));
}

// An option that another one makes meaningless is refused: ignoring it would look like success.
void check_combinations(const QuantizeOptions& options) {
  const std::string recipe = to_string(options.recipe);
  const bool is_trefoil = options.recipe == QuantizeRecipe::kTrefoil;
  const bool is_rtn = options.recipe == QuantizeRecipe::kRtn;
  require(options.recipe == QuantizeRecipe::kStock || !options.stock_zero_mask,
          fmt::format("the zero mask belongs to recipe stock, not to {}", recipe));
  require(is_trefoil || options.tuning == TrefoilTuning{},
          fmt::format("tuning options belong to recipe trefoil, not to {}", recipe));
  require(is_trefoil || options.scales == QuantizeOptions::Scales::kAny,
          fmt::format("scales positive belongs to recipe trefoil; the scales of {} are positive already", recipe));
  require(!is_rtn || options.calibration.empty(), "recipe rtn reads no calibration text: leave it out");
  require(is_rtn || !options.calibration.empty(), fmt::format("recipe {} needs calibration text", recipe));
  require(!is_rtn || (options.held_out.empty() && options.save_calibration.empty()),
          "recipe rtn calibrates on nothing: there is nothing to save and nothing that held-out text could overlap");
  require(!options.join || options.save_calibration.empty(),
          "processes that share a job cannot all save its calibration: save it in a dry run first");
  require(!options.refuse_overlap || !options.held_out.empty(), "refusing overlap needs held-out text");
}

std::string calibration_yaml(const QuantizeOptions& options) {
  return fmt::format("# calibration: {} rows of {} tokens, routed tokens only, seed {}\n",
                     options.num_calibration_samples, options.max_seq_length, options.seed);
}

std::string scheme_yaml(const QuantizeOptions& options, std::string_view indent) {
  const PackQuantizedSpec spec = config_of(options);
  return fmt::format(
      "{0}config_groups:\n{0}  group_0:\n{0}    targets: ['re:.*block_sparse_moe\\.experts\\.\\d+\\.w[123]$']\n{0}    "
      "weights:\n"
      "{0}      num_bits: {1}\n{0}      type: int\n{0}      symmetric: true\n{0}      strategy: group\n{0}      "
      "group_size: {2}\n"
      "{0}      observer: {3}\n{0}      actorder: {4}\n",
      indent, spec.num_bits, spec.group_size, spec.observer, spec.actorder.empty() ? "null" : spec.actorder);
}

}  // namespace

void check_options(const QuantizeOptions& options) {
  require(!options.source.empty(), "no source folder given");
  require(!options.output.empty(), "no output folder given");
  check_actorder(options.actorder);
  check_numbers(options);
  check_tuning(options.tuning);
  check_combinations(options);
}

ExpertEncoding encoding_of(const QuantizeOptions& options) {
  return {options.num_bits, options.group_size,
          options.layout == QuantizeOptions::Layout::kDense ? PackedLayout::kDense : PackedLayout::kPadded};
}

PackQuantizedSpec config_of(const QuantizeOptions& options) {
  const ExpertEncoding encoding = encoding_of(options);
  PackQuantizedSpec spec;
  spec.num_bits = encoding.num_bits;
  spec.group_size = encoding.group_size;
  spec.layout = encoding.layout;
  spec.actorder = options.recipe == QuantizeRecipe::kRtn ? "" : "static";
  spec.observer = options.recipe == QuantizeRecipe::kTrefoil ? "imatrix_mse" : "memoryless_minmax";
  return spec;
}

std::string recipe_yaml(const QuantizeOptions& options) {
  const std::string indent = "      ";
  switch (options.recipe) {
    case QuantizeRecipe::kRtn:
      return "default_stage:\n  default_modifiers:\n    QuantizationModifier:\n" + scheme_yaml(options, indent);
    case QuantizeRecipe::kStock:
      return calibration_yaml(options) +
             fmt::format("# zero mask of llm-compressor 0.12.0.1: {}\n", options.stock_zero_mask ? "on" : "off") +
             "default_stage:\n  default_modifiers:\n    GPTQModifier:\n" + scheme_yaml(options, indent) +
             fmt::format("{0}block_size: 128\n{0}dampening_frac: {1}\n", indent, options.dampening_frac);
    case QuantizeRecipe::kTrefoil:
      break;
  }
  const TrefoilTuning& tuning = options.tuning;
  return calibration_yaml(options) + "default_stage:\n  default_modifiers:\n    TrefoilModifier:\n" +
         scheme_yaml(options, indent) +
         fmt::format(
             "{0}dampening_frac: {1}\n{0}scales: {2}\n{0}shrinkage: {3}\n{0}target_alpha: {4}\n{0}refine_rounds: {5}\n"
             "{0}gate_weighting: {6}\n{0}output_metric: {7}\n{0}w2_sequential: {8}\n",
             indent, options.dampening_frac, options.scales == QuantizeOptions::Scales::kAny ? "any" : "positive",
             tuning.shrinkage, tuning.target_alpha, tuning.refine_rounds, tuning.gate_weighting, tuning.output_metric,
             tuning.w2_sequential);
}

}  // namespace trefoil
