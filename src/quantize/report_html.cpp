// The quantization report as a page for people.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "quantize/calibration_markdown.h"
#include "quantize/report.h"
#include "quantize/report_facts.h"
#include "report/html_page.h"
#include "report/svg_chart.h"
#include "text/shared_runs.h"

namespace trefoil {
namespace {

constexpr size_t kMaxListed = 20;  // thin experts, files, sources: the JSON has them all
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string count(int64_t value) {
  return format_count(static_cast<uint64_t>(value));
}

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

std::string in_seconds(double seconds) {
  return fmt::format("{:.{}f}", seconds, seconds < 100 ? 2 : 0);
}

// Of the matrices of one kind in a layer.
struct ErrorsOfKind {
  double mean = kNone, most = kNone;
};

ErrorsOfKind errors_of(const LayerRecord& layer, ExpertPart part) {
  double sum = 0, most = 0;
  int64_t matrices = 0;
  for (const MatrixRecord& matrix : layer.matrices) {
    if (matrix.part != part) continue;
    sum += matrix.relative_error;
    most = std::max(most, matrix.relative_error);
    ++matrices;
  }
  return matrices > 0 ? ErrorsOfKind{sum / static_cast<double>(matrices), most} : ErrorsOfKind{};
}

int64_t fallbacks_of(const LayerRecord& layer) {
  return std::count_if(layer.matrices.begin(), layer.matrices.end(),
                       [](const MatrixRecord& matrix) { return !matrix.fallback.empty(); });
}

ReportTable facts_table(std::string title, const std::vector<ReportFact>& facts) {
  ReportTable table{std::move(title), "", {"what", "value"}, {}};
  for (const ReportFact& fact : facts) table.rows.push_back({fact.name, fact.value});
  return table;
}

// ---- loss ----

std::string error_figure(const QuantizeReport& report) {
  LineChart chart;
  chart.title = "Relative error by layer";
  chart.x = {.title = "layer", .labels = {}, .integers = true};
  chart.y = {.title = "relative error", .log = true, .from_zero = false, .labels = {}};
  for (const ExpertPart part : kExpertParts) {
    const size_t colour = static_cast<size_t>(part);
    ChartSeries mean{fmt::format("{}, mean", to_string(part)), series_class(colour), false, true, {}};
    ChartSeries most{fmt::format("{}, worst expert", to_string(part)), series_class(colour), true, false, {}};
    for (const LayerRecord& layer : report.layers) {
      const ErrorsOfKind errors = errors_of(layer, part);
      mean.points.push_back({static_cast<double>(layer.layer), errors.mean, 0});
      most.points.push_back({static_cast<double>(layer.layer), errors.most, 0});
    }
    chart.series.push_back(std::move(mean));
    chart.series.push_back(std::move(most));
  }
  return html_figure("Relative error by layer and kind", "solid: mean over experts; dashed: the worst expert",
                     render(chart));
}

ReportTable layer_table(const QuantizeReport& report) {
  ReportTable table{"Layers", "", {"layer", "experts", "w1 mean", "w2 mean", "w3 mean", "worst"}, {}};
  if (report.is_calibrated()) table.header.insert(table.header.end(), {"tokens, least", "median", "most", "thin"});
  table.header.insert(table.header.end(), {"fallbacks", "seconds"});
  for (const LayerRecord& layer : report.layers) {
    std::vector<std::string> row = {std::to_string(layer.layer),
                                    count(static_cast<int64_t>(layer.tokens_per_expert.size()))};
    double worst = 0;
    for (const ExpertPart part : kExpertParts) {
      const ErrorsOfKind errors = errors_of(layer, part);
      row.push_back(format_number(errors.mean));
      worst = std::max(worst, errors.most);
    }
    row.push_back(format_number(worst));
    if (report.is_calibrated()) {
      const TokenSpread tokens = token_spread(layer);
      row.insert(row.end(), {count(tokens.least), count(tokens.median), count(tokens.most),
                             count(layer.thin_experts(report.latent))});
    }
    row.insert(row.end(), {count(fallbacks_of(layer)), in_seconds(layer_seconds(report, layer.layer))});
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string loss_section(const QuantizeReport& report) {
  return html_heading("Loss",
                      "The relative error is the loss over that of an all-zero weight, under the Hessian used (recipe "
                      "rtn: of the weights themselves).") +
         error_figure(report) + html_folded(layer_table(report));
}

// ---- experts ----

std::string token_figure(const QuantizeReport& report) {
  LineChart chart;
  chart.title = "Calibration tokens of an expert";
  chart.x = {.title = "layer", .labels = {}, .integers = true};
  chart.y = {.title = "tokens", .log = false, .from_zero = true, .labels = {}};
  std::array<ChartSeries, 4> series = {
      ChartSeries{"most", series_class(0), true, false, {}}, ChartSeries{"median", series_class(0), false, true, {}},
      ChartSeries{"least", series_class(1), false, true, {}}, ChartSeries{"input columns", "noise", true, false, {}}};
  for (const LayerRecord& layer : report.layers) {
    const auto x = static_cast<double>(layer.layer);
    const TokenSpread tokens = token_spread(layer);
    series[0].points.push_back({x, static_cast<double>(tokens.most), 0});
    series[1].points.push_back({x, static_cast<double>(tokens.median), 0});
    series[2].points.push_back({x, static_cast<double>(tokens.least), 0});
    series[3].points.push_back({x, static_cast<double>(report.latent), 0});
  }
  chart.series.assign(series.begin(), series.end());
  return html_figure("Calibration tokens of an expert, by layer",
                     "an expert below the grey line sees fewer tokens than w1 and w3 have input columns",
                     render(chart));
}

std::string expert_section(const QuantizeReport& report) {
  if (!report.is_calibrated()) return "";
  const QuantizeSummary summary = summarize(report);
  ReportTable thin{
      "Thinnest experts",
      fmt::format("{} experts saw fewer tokens than w1 and w3 have input columns ({}), {} saw none.",
                  count(summary.thin_experts), count(report.latent), count(summary.experts_without_tokens)),
      {"layer", "expert", "tokens"},
      {}};
  for (const ThinExpert& expert : thinnest_experts(report.layers, report.latent, kMaxListed))
    thin.rows.push_back({std::to_string(expert.layer), std::to_string(expert.expert), count(expert.tokens)});
  if (thin.empty())
    return html_heading("Experts", "Every expert saw more tokens than it has input columns.") + token_figure(report);
  return html_section(thin, token_figure(report));
}

ReportTable fallback_table(const QuantizeReport& report) {
  ReportTable table{
      "Fallbacks", "Matrices that did not get the recipe's own treatment.", {"what and why", "matrices"}, {}};
  for (const auto& [reason, matrices] : fallbacks_by_reason(report)) table.rows.push_back({reason, count(matrices)});
  return table;
}

// ---- time ----

std::string step_figure(const QuantizeReport& report) {
  LineChart chart;
  chart.title = "Seconds by layer";
  chart.x = {.title = "layer", .labels = {}, .integers = true};
  chart.y = {.title = "seconds", .log = false, .from_zero = true, .labels = {}};
  for (size_t i = 0; i < kStepKinds.size(); ++i) {
    ChartSeries series{to_string(kStepKinds[i]), series_class(i), false, true, {}};
    for (const StepRecord& step : report.steps) {
      const auto x = static_cast<double>(step.layer);
      if (step.kind != kStepKinds[i] || step.layer < 0) continue;
      if (!series.points.empty() && series.points.back().x == x) {
        series.points.back().y += step.seconds;
      } else {
        series.points.push_back({x, step.seconds, 0});
      }
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return html_figure("Seconds by layer and step", "units of all processes and runs, added up", render(chart));
}

ReportTable step_table(const QuantizeReport& report) {
  ReportTable table{"Time by step", "", {"step", "seconds", "share"}, {}};
  double all = 0;
  for (const StepKind kind : kStepKinds) all += step_seconds(report, kind);
  for (const StepKind kind : kStepKinds) {
    const double seconds = step_seconds(report, kind);
    if (seconds > 0) table.rows.push_back({to_string(kind), in_seconds(seconds), percent(seconds, all)});
  }
  return table;
}

ReportTable phase_table(const QuantizeReport& report) {
  ReportTable table{"Time of the experts by phase",
                    "CPU seconds of single threads; operations of the formulas, counted apart.",
                    {"phase", "CPU seconds", "share", "GFLOP", "GFLOP/s of a thread"},
                    {}};
  const ExpertTimes times = all_expert_times(report);
  const double all = times.gate_up.total().seconds + times.down.total().seconds;
  const auto add = [&](std::string_view matrices, const PhaseTimes& phases) {
    for (const Phase phase : kPhases) {
      const PhaseCost& cost = phases[phase];
      if (cost.seconds <= 0) continue;
      const bool counts = cost.flops > 0;
      table.rows.push_back({fmt::format("{} {}", matrices, to_string(phase)), in_seconds(cost.seconds),
                            percent(cost.seconds, all), counts ? format_number(cost.flops / 1e9) : "-",
                            counts ? fmt::format("{:.1f}", cost.flops / 1e9 / cost.seconds) : "-"});
    }
  };
  add("w1+w3", times.gate_up);
  add("w2", times.down);
  return table;
}

ReportTable resource_table(const QuantizeReport& report) {
  ReportTable table{"Planned and used", "", {"resource", "planned", "used"}, {}};
  for (const PlannedFact& fact : resource_facts(report)) table.rows.push_back({fact.name, fact.planned, fact.used});
  return table;
}

// ---- calibration and provenance ----

ReportTable file_table(const CalibrationSet& calibration) {
  ReportTable table{"Calibration text", "", {"file", "documents used", "tokens", "share", "SHA-256"}, {}};
  for (size_t i = 0; i < std::min(kMaxListed, calibration.files.size()); ++i) {
    const CalibrationFile& file = calibration.files[i];
    table.rows.push_back({file.name, used_of_all(file), count(file.tokens),
                          percent(static_cast<double>(file.tokens), static_cast<double>(calibration.num_tokens())),
                          file.sha256});
  }
  return table;
}

ReportTable source_table(const CalibrationSet& calibration) {
  ReportTable table{"Calibration tokens by source", "", {"source", "tokens", "share"}, {}};
  for (size_t i = 0; i < std::min(kMaxListed, calibration.sources.size()); ++i) {
    const auto& source = calibration.sources[i];
    table.rows.push_back({source.source, count(source.tokens),
                          percent(static_cast<double>(source.tokens), static_cast<double>(calibration.num_tokens()))});
  }
  return table;
}

ReportTable script_table(const CalibrationSet& calibration) {
  ReportTable table{"Calibration text by script", "", {"script", "share of characters"}, {}};
  for (size_t i = 0; i < std::min(kMaxListed, calibration.scripts.size()); ++i)
    table.rows.push_back({calibration.scripts[i].script, percent(calibration.scripts[i].share, 1)});
  return table;
}

ReportTable held_out_table(const CalibrationSet& calibration) {
  ReportTable table{"Held-out texts",
                    fmt::format("Documents that share a passage of {} tokens with the calibration.", kSharedRun),
                    {"file", "documents", "overlapping", "contained", "shared tokens"},
                    {}};
  if (!calibration.held_out) return table;
  for (const HeldOutFile& file : calibration.held_out->files) {
    const SharedPassages& found = file.passages;
    table.rows.push_back({file.name, count(found.documents), count(found.overlapping), count(found.contained),
                          count(found.shared_tokens)});
  }
  return table;
}

std::string calibration_sections(const QuantizeReport& report) {
  if (!report.is_calibrated()) return "";
  const CalibrationSet& calibration = report.calibration;
  return html_section(file_table(calibration)) + html_section(source_table(calibration)) +
         html_section(script_table(calibration)) + html_section(held_out_table(calibration));
}

ReportTable provenance_table(const QuantizeReport& report) {
  const EnvironmentRecord& environment = report.environment;
  std::vector<ReportFact> facts = {{"source config, SHA-256", report.source.config_sha256},
                                   {"source index, SHA-256", report.source.index_sha256},
                                   {"source shards", count(static_cast<int64_t>(report.source.shards.size()))},
                                   {"compiler", environment.compiler},
                                   {"BLAS", environment.blas},
                                   {"instructions", environment.isa},
                                   {"threads", std::to_string(environment.threads)},
                                   {"seed", std::to_string(report.options.seed)}};
  std::erase_if(facts, [](const ReportFact& fact) { return fact.value.empty(); });
  return facts_table("Provenance", facts);
}

}  // namespace

std::string report_html(const QuantizeReport& report) {
  const QuantizeOptions& options = report.options;
  const std::string title = fmt::format("{}: routed experts at {} bits", report.source.folder, options.num_bits);
  const std::string subtitle =
      fmt::format("trefoil {} quantize, recipe {}, {}{}", report.environment.version, to_string(options.recipe),
                  format_duration(report.seconds), options.layers ? "; a part of the layers" : "");
  std::string body = html_section(facts_table("Settings", setting_facts(report)), "", Cells::kTexts);
  body += html_section(facts_table("Result", result_facts(report)), "", Cells::kTexts);
  body += loss_section(report) + expert_section(report) + html_section(fallback_table(report));
  body += html_section(step_table(report), step_figure(report)) + html_section(phase_table(report));
  body += html_section(resource_table(report)) + calibration_sections(report);
  body += html_section(provenance_table(report), "", Cells::kTexts);
  return html_page("trefoil quantize: " + title, title, subtitle, body);
}

}  // namespace trefoil
