#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "eval/report.h"
#include "eval/report_tables.h"
#include "report/html_page.h"
#include "report/svg_chart.h"

namespace trefoil {
namespace {

std::string headline_figure(const EvalRecord& record) {
  DotChart chart;
  chart.title = "Mean KL divergence";
  chart.axis_title = "mean KL divergence, nats per token";
  for (size_t i = 0; i < record.candidates.size(); ++i) {
    const CandidateSummary& candidate = record.candidates[i];
    chart.entries.push_back({candidate.label, series_class(i), candidate.kld.value, candidate.kld.standard_error,
                             format_estimate(candidate.kld)});
  }
  if (const NoiseSummary* noise = largest_noise(record)) {
    chart.entries.push_back({"noise floor", "noise", noise->kld.value, noise->kld.standard_error,
                             noise->exact ? "exactly 0" : format_estimate(noise->kld)});
  }
  return html_figure("Mean KL divergence from the reference",
                     "dot: mean; whisker: one standard error; shorter is better", render(chart));
}

std::string tail_figure(const EvalRecord& record) {
  LineChart chart;
  chart.title = "Tail of the KL divergence";
  chart.x = {.title = "KL divergence of a token, nats", .log = true, .from_zero = false, .labels = {}};
  chart.y = {.title = "share of tokens above", .log = true, .from_zero = false, .labels = {}};
  const auto add = [&](const std::string& label, const std::string& css, bool dashed, const auto& tail) {
    ChartSeries series{label, css, dashed, false, {}};
    for (const auto& [share, kld] : tail) series.points.push_back({kld, share, 0});
    chart.series.push_back(series);
  };
  for (size_t i = 0; i < record.candidates.size(); ++i) {
    add(record.candidates[i].label, series_class(i), false, record.candidates[i].kld_tail);
  }
  const NoiseSummary* noise = largest_noise(record);
  if (noise != nullptr && !noise->exact) add("noise floor", "noise", true, noise->kld_tail);
  return html_figure("Tail",
                     "how many tokens are further away than a given divergence; lower and further left is better",
                     render(chart));
}

std::string group_figure(const EvalRecord& record, const std::string& title, const std::string& axis,
                         std::vector<GroupSummary> CandidateSummary::*groups, bool named) {
  LineChart chart;
  chart.title = title;
  chart.width = named ? 960 : kHalfFigure;
  chart.connect = !named;
  chart.x.title = axis;
  chart.y = {.title = "mean KLD, nats", .log = false, .from_zero = true, .labels = {}};
  for (size_t i = 0; i < record.candidates.size(); ++i) {
    const CandidateSummary& candidate = record.candidates[i];
    ChartSeries series{candidate.label, series_class(i), false, true, {}};
    chart.x.labels.clear();
    // Series stand slightly apart so that their error bars can be told from each other.
    const double shift = 0.06 * (static_cast<double>(i) - static_cast<double>(record.candidates.size() - 1) / 2);
    for (const GroupSummary& group : candidate.*groups) {
      series.points.push_back(
          {static_cast<double>(chart.x.labels.size()) + shift, group.kld.value, group.kld.standard_error});
      chart.x.labels.push_back(group.name);
    }
    chart.series.push_back(series);
  }
  return html_figure(title, "mean ± one standard error between rows", render(chart));
}

using LayerValue = double (*)(const StreamLayerProbe&);

std::string stream_figure(const EvalRecord& record, const std::string& title, const std::string& explanation,
                          const ChartAxis& y, LayerValue value) {
  LineChart chart;
  chart.title = title;
  chart.width = kHalfFigure;
  chart.x = {.title = "layer", .labels = {}, .integers = true};
  chart.y = y;
  for (size_t i = 0; i < record.probes.size(); ++i) {
    ChartSeries series{record.probes[i].label, series_class(i), false, record.probes[i].stream.size() <= 40, {}};
    for (const StreamLayerProbe& layer : record.probes[i].stream) {
      series.points.push_back({static_cast<double>(layer.layer), value(layer), 0});
    }
    chart.series.push_back(series);
  }
  return html_figure(title, explanation, render(chart));
}

std::string isolated_figure(const EvalRecord& record) {
  LineChart chart;
  chart.title = "Isolated error of RMSNorm(u)";
  chart.width = kHalfFigure;
  chart.x = {.title = "layer", .labels = {}, .integers = true};
  chart.y = {.title = "relative squared error", .log = true, .from_zero = false, .labels = {}};
  for (size_t i = 0; i < record.probes.size(); ++i) {
    ChartSeries median{record.probes[i].label + ", median", series_class(i), false, true, {}};
    ChartSeries tail{record.probes[i].label + ", p99", series_class(i), true, false, {}};
    for (const IsolatedLayerProbe& layer : record.probes[i].isolated) {
      median.points.push_back({static_cast<double>(layer.layer), layer.normed_sum.median, 0});
      tail.points.push_back({static_cast<double>(layer.layer), layer.normed_sum.p99, 0});
    }
    chart.series.push_back(median);
    chart.series.push_back(tail);
  }
  return html_figure("Isolated error of RMSNorm(u) by layer", "original inputs and routing; over tokens",
                     render(chart));
}

std::string decile_figure(const EvalRecord& record) {
  LineChart chart;
  chart.title = "Expert output error by expert load";
  chart.width = kHalfFigure;
  chart.x = {.title = "load decile (1: experts with the fewest tokens)", .labels = {}, .integers = true};
  chart.y = {.title = "relative squared error", .log = false, .from_zero = true, .labels = {}};
  for (size_t i = 0; i < record.probes.size(); ++i) {
    ChartSeries series{record.probes[i].label, series_class(i), false, true, {}};
    for (const LoadDecileProbe& decile : record.probes[i].load_deciles) {
      series.points.push_back({static_cast<double>(decile.decile + 1), decile.expert_out.mean, 0});
    }
    chart.series.push_back(series);
  }
  return html_figure("Expert output error by expert load", "total error energy over total energy", render(chart));
}

std::string codes_figure(const EvalRecord& record) {
  LineChart chart;
  chart.title = "Use of the codes";
  chart.x = {.title = "code", .labels = {}, .integers = true};
  chart.y = {.title = "share of weights", .log = false, .from_zero = true, .labels = {}};
  for (size_t i = 0; i < record.probes.size(); ++i) {
    ChartSeries series{record.probes[i].label, series_class(i), false, true, {}};
    std::vector<double> totals;
    double total = 0;
    int64_t lowest = 0;
    for (const WeightKindProbe& kind : record.probes[i].weights) {
      totals.resize(std::max(totals.size(), kind.codes.size()), 0.0);
      lowest = std::min(lowest, kind.lowest_code);
      for (size_t c = 0; c < kind.codes.size(); ++c) {
        totals[c] += static_cast<double>(kind.codes[c]);
        total += static_cast<double>(kind.codes[c]);
      }
    }
    for (size_t c = 0; c < totals.size() && totals.size() <= 16; ++c) {
      series.points.push_back({static_cast<double>(lowest) + static_cast<double>(c), totals[c] / total, 0});
    }
    chart.series.push_back(series);
  }
  return html_figure("Use of the codes", "all expert matrices together", render(chart));
}

std::string probe_sections(const EvalRecord& record) {
  if (record.probes.empty()) return "";
  std::string out = html_section(weight_table(record), codes_figure(record));
  const ReportTable isolated = isolated_table(record), stream = stream_table(record);
  if (!isolated.empty()) {
    out += html_heading(isolated.title, isolated.note);
    out += html_pair(isolated_figure(record), decile_figure(record)) + html_folded(isolated) +
           html_folded(decile_table(record));
  }
  if (stream.empty()) return out;
  out += html_heading(stream.title, stream.note);
  const ChartAxis error = {.title = "relative L2 error", .log = false, .from_zero = true, .labels = {}};
  const ChartAxis share = {.title = "share of chosen experts", .log = false, .from_zero = false, .labels = {}};
  out += html_pair(stream_figure(record, "Growth of the error", "residual stream after each layer", error,
                                 [](const StreamLayerProbe& layer) { return layer.relative_l2; }),
                   stream_figure(record, "Routing overlap", "experts both models chose for a token", share,
                                 [](const StreamLayerProbe& layer) { return layer.topk_overlap.value; }));
  return out + html_folded(stream);
}

std::string verdict(const EvalRecord& record) {
  if (record.checks.empty()) return "";
  const auto violated = std::count_if(record.checks.begin(), record.checks.end(),
                                      [](const ConditionResult& check) { return check.violated; });
  if (violated == 0) return "<p class=\"verdict pass\">All conditions passed</p>\n";
  return fmt::format("<p class=\"verdict fail\">{} of {} conditions failed</p>\n", violated, record.checks.size());
}

std::string title_of(const EvalRecord& record) {
  std::string names;
  for (size_t i = 1; i < record.models.size(); ++i) names += (i > 1 ? ", " : "") + record.models[i].label;
  const std::string reference = record.models.empty() ? "original" : record.models.front().label;
  if (names.empty()) return reference;
  return names + " against " + reference;
}

std::string score_sections(const EvalRecord& record) {
  std::string out = html_section(headline_table(record), record.has_kld() ? headline_figure(record) : "");
  out += html_section(pair_table(record));
  if (record.has_kld()) {
    out += html_section(tail_table(record), tail_figure(record));
    out += html_section(noise_table(record));
    out += html_section(source_table(record),
                        group_figure(record, "KL divergence by source", "source", &CandidateSummary::by_source, true));
    out += html_heading("Where it happens");
    out += html_pair(
        group_figure(record, "By position in the row", "position", &CandidateSummary::by_position, false),
        group_figure(record, "By the reference's certainty", "quarter of tokens by entropy (q1: most certain)",
                     &CandidateSummary::by_entropy, false));
    return out + html_folded(entropy_table(record));
  }
  return out + html_section(source_table(record));
}

}  // namespace

std::string report_html(const EvalRecord& record) {
  const std::string title = title_of(record);
  std::string out = verdict(record);
  if (record.command != "probe") out += score_sections(record);
  out += probe_sections(record);
  out += html_section(check_table(record));
  out +=
      html_section(model_table(record), "", Cells::kTexts) + html_section(provenance_table(record), "", Cells::kTexts);
  if (!record.notes.empty()) out += html_heading("Notes") + "<ul>\n";
  for (const std::string& note : record.notes) out += "<li>" + escape_html(note) + "</li>\n";
  if (!record.notes.empty()) out += "</ul>\n";
  return html_page("trefoil eval: " + title, title,
                   fmt::format("trefoil {} eval {}{}{}", record.version, record.command,
                               record.date.empty() ? "" : ", ", record.date),
                   out);
}

}  // namespace trefoil
