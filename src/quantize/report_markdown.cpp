// The summary of a quantization report for a model card.
#include <fmt/format.h>

#include "base/bytes.h"
#include "quantize/calibration_markdown.h"
#include "quantize/report.h"
#include "quantize/report_facts.h"

namespace trefoil {
namespace {

std::string count(int64_t value) {
  return format_count(static_cast<uint64_t>(value));
}

std::string row(std::string_view name, std::string_view value) {
  return fmt::format("| {} | {} |\n", name, value);
}

std::string table_of(std::string_view header, const std::vector<ReportFact>& facts) {
  std::string table = fmt::format("| {} | value |\n|---|---|\n", header);
  for (const ReportFact& fact : facts) table += row(fact.name, fact.value);
  return table;
}

std::string fallback_list(const QuantizeReport& report) {
  std::string list;
  for (const auto& [reason, times] : fallbacks_by_reason(report))
    list += fmt::format("- {} matrices: {}\n", count(times), reason);
  return list.empty() ? list : "\nFallbacks:\n\n" + list;
}

}  // namespace

std::string resources_markdown(const QuantizeReport& report) {
  std::string table = "\n| resource | planned | used |\n|---|---|---|\n";
  for (const PlannedFact& fact : resource_facts(report))
    table += fmt::format("| {} | {} | {} |\n", fact.name, fact.planned, fact.used);
  return table;
}

std::string report_markdown(const QuantizeReport& report) {
  const bool is_calibrated = report.is_calibrated();
  const std::string settings =
      table_of("setting", setting_facts(report)) + (is_calibrated ? calibration_markdown(report.calibration) : "");
  if (report.options.dry_run) {
    return settings + fmt::format("\nDry run: every check passed, nothing was written{}.\n",
                                  report.options.save_calibration.empty() ? "" : " but the frozen calibration");
  }
  const char* explanation =
      is_calibrated
          ? "The relative error is loss / loss of an all-zero weight under the Hessian used. Per-matrix figures "
            "and the exact calibration tokens are in `quantization_report.json`."
          : "The relative error is that of the weights themselves: rtn reads no text. Per-matrix figures are in "
            "`quantization_report.json`.";
  return settings + "\n" + table_of("result", result_facts(report)) +
         (is_calibrated ? thin_experts_markdown(report.layers, report.latent) : "") + fallback_list(report) +
         fmt::format("\n{}\n", explanation);
}

std::string next_steps_text(const QuantizeReport& report) {
  const std::string output = report.options.output.string(), source = report.options.source.string();
  if (report.options.layers) return fmt::format("\nwrote {}, a part of the layers and not a checkpoint\n", output);
  return fmt::format(
      "\nwrote {0}; next: trefoil verify {0} --against {1}, then trefoil eval kld {0} --reference {1} --text FILE\n",
      output, source);
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
