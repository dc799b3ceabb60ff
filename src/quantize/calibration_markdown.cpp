// The calibration and what it left thin, for a model card.
#include "quantize/calibration_markdown.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "text/shared_runs.h"

namespace trefoil {
namespace {

constexpr size_t kMaxListed = 10;  // files, sources, scripts, experts: the report has them all

std::string count(int64_t value) {
  return format_count(static_cast<uint64_t>(value));
}

std::string percent(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0.0);
}

// A cell's text must not end the cell, the line or the code span it stands in.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += c == '|' || c == '`' || static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return out;
}

std::string left_out(size_t all) {
  return all > kMaxListed ? fmt::format("\n{} more are in the report.\n", all - kMaxListed) : std::string();
}

std::string files_table(const CalibrationSet& calibration) {
  std::string table =
      "\n| calibration file | documents used | tokens | share | asked for |\n|---|---:|---:|---:|---:|\n";
  double weights = 0;
  for (const CalibrationFile& file : calibration.files) weights += file.weight.value_or(0);
  for (size_t i = 0; i < std::min(kMaxListed, calibration.files.size()); ++i) {
    const CalibrationFile& file = calibration.files[i];
    table += fmt::format("| {} | {} | {} | {} | {} |\n", cell(file.name), used_of_all(file), count(file.tokens),
                         percent(static_cast<double>(file.tokens), static_cast<double>(calibration.num_tokens())),
                         file.weight ? percent(*file.weight, weights) : "-");
  }
  return table + left_out(calibration.files.size());
}

std::string sources_list(const CalibrationSet& calibration) {
  if (calibration.sources.size() < 2) return {};
  std::string list = "\nTokens by source:";
  const char* separator = " ";
  for (size_t i = 0; i < std::min(kMaxListed, calibration.sources.size()); ++i) {
    list +=
        fmt::format("{}{} {}", separator, cell(calibration.sources[i].source), count(calibration.sources[i].tokens));
    separator = ", ";
  }
  return list + ".\n" + left_out(calibration.sources.size());
}

std::string scripts_list(const CalibrationSet& calibration) {
  if (calibration.scripts.empty()) return {};
  std::string list = "\nScripts, of the characters that belong to one:";
  const char* separator = " ";
  for (size_t i = 0; i < std::min(kMaxListed, calibration.scripts.size()); ++i) {
    list += fmt::format("{}{} {}", separator, calibration.scripts[i].script, percent(calibration.scripts[i].share, 1));
    separator = ", ";
  }
  return list + ".\n" + left_out(calibration.scripts.size());
}

std::string held_out_list(const HeldOutOverlap& overlap) {
  std::string list;
  for (const HeldOutFile& file : overlap.files) {
    const SharedPassages& found = file.passages;
    list += fmt::format(
        "\nHeld out, {}: {} of {} documents share a passage of {} tokens with the calibration, {} of them as a whole; "
        "{} of its {} tokens.\n",
        cell(file.name), count(found.overlapping), count(found.documents), kSharedRun, count(found.contained),
        count(found.shared_tokens), count(found.tokens));
  }
  return list;
}

}  // namespace

std::string used_of_all(const CalibrationFile& file) {
  if (!file.documents_used) return count(file.documents) + " in the file";
  return fmt::format("{} of {}", count(*file.documents_used), count(file.documents));
}

std::string calibration_markdown(const CalibrationSet& calibration) {
  std::string text = files_table(calibration);
  if (calibration.frozen) {
    text += fmt::format("\nThe rows are the frozen set {}, SHA-256 {}.\n", cell(calibration.frozen->name),
                        calibration.frozen->sha256);
  }
  text += sources_list(calibration) + scripts_list(calibration);
  if (calibration.held_out) text += held_out_list(*calibration.held_out);
  return text;
}

std::string thin_experts_markdown(const std::vector<LayerRecord>& layers, int64_t columns) {
  int64_t all = 0;
  for (const LayerRecord& layer : layers) all += layer.thin_experts(columns);
  if (all == 0) return {};
  std::string table = "\n| thinnest experts: layer | expert | tokens |\n|---:|---:|---:|\n";
  for (const ThinExpert& thin : thinnest_experts(layers, columns, kMaxListed)) {
    table += fmt::format("| {} | {} | {} |\n", thin.layer, thin.expert, count(thin.tokens));
  }
  return table + left_out(static_cast<size_t>(all));
}

}  // namespace trefoil
