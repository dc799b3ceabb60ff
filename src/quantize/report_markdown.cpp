// The summary of a quantization report for a model card.
#include <fmt/format.h>

#include <map>

#include "base/bytes.h"
#include "quantize/calibration_markdown.h"
#include "quantize/report.h"

namespace trefoil {
namespace {

std::string count(int64_t value) {
  return format_count(static_cast<uint64_t>(value));
}

std::string row(std::string_view name, std::string_view value) {
  return fmt::format("| {} | {} |\n", name, value);
}

std::string settings_table(const QuantizeReport& report, const QuantizeSummary& summary) {
  const QuantizeOptions& options = report.options;
  const bool dense = options.layout == QuantizeOptions::Layout::kDense;
  std::string table = "| setting | value |\n|---|---|\n";
  table += row("source", report.source.folder);
  table += row("recipe", fmt::format("{}, trefoil {}", to_string(options.recipe), report.environment.version));
  table += row("routed experts", fmt::format("int{} symmetric, group {}, BF16 scales, {:.3f} bits per weight",
                                             options.num_bits, options.group_size, summary.bits_per_weight));
  table += row("layout", dense ? "pack-quantized, dense (compressed-tensors 0.18 and later)"
                               : "pack-quantized, padded (compressed-tensors 0.17.x)");
  table += row("everything else", "byte-identical to the source");
  table += row("tensor bytes",
               fmt::format("{}, source {}", format_gb(summary.output_bytes), format_gb(summary.source_bytes)));
  if (options.recipe != QuantizeRecipe::kRtn) {
    table += row("calibration", fmt::format("{} rows of {} tokens, routed tokens only", count(summary.calibration_rows),
                                            count(report.calibration.row_length)));
  }
  return table;
}

std::string result_table(const QuantizeReport& report, const QuantizeSummary& summary) {
  std::string table = "| result | value |\n|---|---|\n";
  table += row("matrices", fmt::format("{} in {} layers", count(summary.matrices), count(summary.layers)));
  table += row("mean relative error w1 / w2 / w3", fmt::format("{:.4f} / {:.4f} / {:.4f}", summary.relative_error_w1,
                                                               summary.relative_error_w2, summary.relative_error_w3));
  if (report.options.recipe != QuantizeRecipe::kRtn) {
    table += row("experts with fewer tokens than input columns", count(summary.thin_experts));
    table += row("experts without tokens", count(summary.experts_without_tokens));
  }
  table += row("fallbacks", count(summary.fallbacks));
  return table;
}

std::string fallback_list(const QuantizeReport& report) {
  std::map<std::string, int64_t> by_reason;
  for (const LayerRecord& layer : report.layers) {
    for (const MatrixRecord& matrix : layer.matrices) {
      if (!matrix.fallback.empty()) ++by_reason[matrix.fallback];
    }
  }
  std::string list;
  for (const auto& [reason, times] : by_reason) list += fmt::format("- {} matrices: {}\n", count(times), reason);
  return list.empty() ? list : "\nFallbacks:\n\n" + list;
}

}  // namespace

std::string resources_markdown(const QuantizeReport& report) {
  std::string table = "\n| resource | planned | used |\n|---|---|---|\n";
  const auto line = [&](std::string_view name, uint64_t planned, uint64_t used) {
    table += fmt::format("| {} | {} | {} |\n", name, format_gb(planned), format_gb(used));
  };
  line("memory, at most", report.planned_memory_bytes, report.peak_memory_bytes);
  if (report.options.recipe != QuantizeRecipe::kRtn)
    line("scratch on disk, at most", report.planned_scratch_bytes, report.peak_scratch_bytes);
  return table;
}

std::string report_markdown(const QuantizeReport& report) {
  const QuantizeSummary summary = summarize(report);
  const bool is_calibrated = report.options.recipe != QuantizeRecipe::kRtn;
  const std::string settings =
      settings_table(report, summary) + (is_calibrated ? calibration_markdown(report.calibration) : "");
  if (report.options.dry_run) {
    return settings + fmt::format("\nDry run: every check passed, nothing was written{}.\n",
                                  report.options.save_calibration.empty() ? "" : " but the frozen calibration");
  }
  return settings + "\n" + result_table(report, summary) + thin_experts_markdown(report.layers, report.latent) +
         fallback_list(report) +
         "\nThe relative error is loss / loss of an all-zero weight under the Hessian used (recipe rtn: of the weights "
         "themselves). "
         "Per-matrix figures and the exact calibration tokens are in `quantization_report.json`.\n";
}

std::string model_card(const QuantizeReport& report) {
  return fmt::format(
             "---\nlibrary_name: transformers\ntags: [kimi_k3, compressed-tensors, int{}]\n---\n# {}: routed experts "
             "at {} bits\n\n"
             "Made from `{}` by trefoil {}. Licence and use: as the source.\n\n",
             report.options.num_bits, report.source.folder, report.options.num_bits, report.source.folder,
             report.environment.version) +
         report_markdown(report) +
         "\nTo check it: `sha256sum -c SHA256SUMS`, and `trefoil verify THIS_FOLDER --against THE_SOURCE`.\n";
}

}  // namespace trefoil
