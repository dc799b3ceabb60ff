#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "eval/report.h"
#include "eval/report_tables.h"
#include "eval/svg_chart.h"

namespace trefoil {
namespace {

constexpr size_t kColours = 6;
constexpr double kHalf = 520;  // drawing width of a figure that shares its line with another

constexpr std::string_view kStyle = R"CSS(
:root { --page:#fbfbfa; --ink:#1c1e21; --soft:#5d636b; --rule:#dcdfe3; --card:#ffffff; --head:#f1f3f5;
  --s0:#2563c9; --s1:#c2410c; --s2:#15803d; --s3:#7c3aed; --s4:#b45309; --s5:#0e7490; --noise:#80868e;
  --good:#15803d; --bad:#b91c1c; }
@media (prefers-color-scheme: dark) {
  :root { --page:#15171a; --ink:#e7e9ec; --soft:#a1a8b0; --rule:#343940; --card:#1c1f23; --head:#24282d;
    --s0:#6ea8fe; --s1:#fb923c; --s2:#4ade80; --s3:#b99bff; --s4:#facc15; --s5:#22d3ee; --noise:#9aa1a9;
    --good:#4ade80; --bad:#f87171; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--page); color:var(--ink); font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif; }
main { max-width:1180px; margin:0 auto; padding:36px 24px 72px; }
h1 { font-size:26px; line-height:1.25; margin:0 0 4px; letter-spacing:-.01em; }
h2 { font-size:18px; margin:40px 0 6px; padding-top:14px; border-top:1px solid var(--rule); }
p { margin:4px 0 12px; } .soft { color:var(--soft); }
.verdict { display:inline-block; margin:10px 0 4px; padding:3px 12px; border-radius:4px; border:1px solid currentColor; font-weight:600; }
.pass { color:var(--good); } .fail { color:var(--bad); }
.scroll { overflow-x:auto; margin:10px 0 18px; border:1px solid var(--rule); border-radius:6px; background:var(--card); }
table { border-collapse:collapse; width:100%; font-size:13.5px; font-variant-numeric:tabular-nums; }
th,td { padding:6px 11px; text-align:right; white-space:nowrap; border-bottom:1px solid var(--rule); }
tr:last-child td { border-bottom:0; } th { background:var(--head); font-weight:600; color:var(--soft); }
th:first-child,td:first-child { text-align:left; font-weight:600; }
td:first-child { max-width:270px; white-space:normal; }
.texts th,.texts td { text-align:left; white-space:normal; overflow-wrap:anywhere; } .texts td:first-child { min-width:130px; }
figure { margin:10px 0 18px; padding:12px 14px 4px; border:1px solid var(--rule); border-radius:6px; background:var(--card); }
figcaption { font-weight:600; font-size:14px; margin-bottom:6px; } figcaption span { font-weight:400; color:var(--soft); }
svg { display:block; width:100%; height:auto; font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif; }
.pair { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr)); gap:0 18px; }
.grid { stroke:var(--rule); stroke-width:1; } .axis { stroke:var(--soft); stroke-width:1; }
.tick { fill:var(--soft); } .name { fill:var(--soft); } .label { fill:var(--ink); font-weight:600; }
.line { fill:none; stroke-width:2; stroke-linejoin:round; } .dashed { stroke-dasharray:6 4; }
.bar { stroke-width:1.6; } .stem { stroke-width:1.6; opacity:.3; }
.s0 { stroke:var(--s0); } .s1 { stroke:var(--s1); } .s2 { stroke:var(--s2); } .s3 { stroke:var(--s3); }
.s4 { stroke:var(--s4); } .s5 { stroke:var(--s5); } .noise { stroke:var(--noise); }
.dot { stroke:none; } .dot.s0 { fill:var(--s0); } .dot.s1 { fill:var(--s1); } .dot.s2 { fill:var(--s2); }
.dot.s3 { fill:var(--s3); } .dot.s4 { fill:var(--s4); } .dot.s5 { fill:var(--s5); } .dot.noise { fill:var(--noise); }
details { margin:10px 0; } summary { cursor:pointer; font-weight:600; }
@media print { body { font-size:12px; } figure,.scroll { break-inside:avoid; } }
)CSS";

std::string colour(size_t index) {
  return fmt::format("s{}", index % kColours);
}

std::string table_html(const ReportTable& table, bool texts = false) {
  std::string out = fmt::format("<div class=\"scroll\"><table{}><thead><tr>", texts ? " class=\"texts\"" : "");
  for (const std::string& name : table.header) out += "<th scope=\"col\">" + escape_html(name) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (const std::string& text : row) out += "<td>" + escape_html(text) + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string section(const ReportTable& table, const std::string& figures = "", bool texts = false) {
  if (table.empty()) return "";
  std::string out = "<h2>" + escape_html(table.title) + "</h2>\n";
  if (!table.note.empty()) out += "<p class=\"soft\">" + escape_html(table.note) + "</p>\n";
  return out + figures + table_html(table, texts);
}

// A long table, folded.
std::string folded(const ReportTable& table) {
  if (table.empty()) return "";
  return "<details><summary>" + escape_html(table.title) + ", all numbers</summary>\n" + table_html(table) +
         "</details>\n";
}

std::string figure(const std::string& title, const std::string& explanation, const std::string& svg) {
  if (svg.empty()) return "";
  return fmt::format("<figure><figcaption>{} <span>{}</span></figcaption>{}</figure>\n", escape_html(title),
                     escape_html(explanation), svg);
}

std::string headline_figure(const EvalRecord& record) {
  DotChart chart;
  chart.title = "Mean KL divergence";
  chart.axis_title = "mean KL divergence, nats per token";
  for (size_t i = 0; i < record.candidates.size(); ++i) {
    const CandidateSummary& candidate = record.candidates[i];
    chart.entries.push_back({candidate.label, colour(i), candidate.kld.value, candidate.kld.standard_error,
                             format_estimate(candidate.kld)});
  }
  if (const NoiseSummary* noise = largest_noise(record)) {
    chart.entries.push_back({"noise floor", "noise", noise->kld.value, noise->kld.standard_error,
                             noise->exact ? "exactly 0" : format_estimate(noise->kld)});
  }
  return figure("Mean KL divergence from the reference", "dot: mean; whisker: one standard error; shorter is better",
                render(chart));
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
    add(record.candidates[i].label, colour(i), false, record.candidates[i].kld_tail);
  }
  const NoiseSummary* noise = largest_noise(record);
  if (noise != nullptr && !noise->exact) add("noise floor", "noise", true, noise->kld_tail);
  return figure("Tail", "how many tokens are further away than a given divergence; lower and further left is better",
                render(chart));
}

std::string group_figure(const EvalRecord& record, const std::string& title, const std::string& axis,
                         std::vector<GroupSummary> CandidateSummary::*groups, bool named) {
  LineChart chart;
  chart.title = title;
  chart.width = named ? 960 : kHalf;
  chart.connect = !named;
  chart.x.title = axis;
  chart.y = {.title = "mean KLD, nats", .log = false, .from_zero = true, .labels = {}};
  for (size_t i = 0; i < record.candidates.size(); ++i) {
    const CandidateSummary& candidate = record.candidates[i];
    ChartSeries series{candidate.label, colour(i), false, true, {}};
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
  return figure(title, "mean ± one standard error between rows", render(chart));
}

using LayerValue = double (*)(const StreamLayerProbe&);

std::string stream_figure(const EvalRecord& record, const std::string& title, const std::string& explanation,
                          const ChartAxis& y, LayerValue value) {
  LineChart chart;
  chart.title = title;
  chart.width = kHalf;
  chart.x.title = "layer";
  chart.y = y;
  for (size_t i = 0; i < record.probes.size(); ++i) {
    ChartSeries series{record.probes[i].label, colour(i), false, record.probes[i].stream.size() <= 40, {}};
    for (const StreamLayerProbe& layer : record.probes[i].stream) {
      series.points.push_back({static_cast<double>(layer.layer), value(layer), 0});
    }
    chart.series.push_back(series);
  }
  return figure(title, explanation, render(chart));
}

std::string isolated_figure(const EvalRecord& record) {
  LineChart chart;
  chart.title = "Isolated error of RMSNorm(u)";
  chart.width = kHalf;
  chart.x.title = "layer";
  chart.y = {.title = "relative squared error", .log = true, .from_zero = false, .labels = {}};
  for (size_t i = 0; i < record.probes.size(); ++i) {
    ChartSeries median{record.probes[i].label + ", median", colour(i), false, true, {}};
    ChartSeries tail{record.probes[i].label + ", p99", colour(i), true, false, {}};
    for (const IsolatedLayerProbe& layer : record.probes[i].isolated) {
      median.points.push_back({static_cast<double>(layer.layer), layer.normed_sum.median, 0});
      tail.points.push_back({static_cast<double>(layer.layer), layer.normed_sum.p99, 0});
    }
    chart.series.push_back(median);
    chart.series.push_back(tail);
  }
  return figure("Isolated error of RMSNorm(u) by layer", "original inputs and routing; over tokens", render(chart));
}

std::string decile_figure(const EvalRecord& record) {
  LineChart chart;
  chart.title = "Expert output error by expert load";
  chart.width = kHalf;
  chart.x.title = "load decile (1: experts with the fewest tokens)";
  chart.y = {.title = "relative squared error", .log = false, .from_zero = true, .labels = {}};
  for (size_t i = 0; i < record.probes.size(); ++i) {
    ChartSeries series{record.probes[i].label, colour(i), false, true, {}};
    for (const LoadDecileProbe& decile : record.probes[i].load_deciles) {
      series.points.push_back({static_cast<double>(decile.decile + 1), decile.expert_out.mean, 0});
    }
    chart.series.push_back(series);
  }
  return figure("Expert output error by expert load", "total error energy over total energy", render(chart));
}

std::string codes_figure(const EvalRecord& record) {
  LineChart chart;
  chart.title = "Use of the codes";
  chart.x.title = "code";
  chart.y = {.title = "share of weights", .log = false, .from_zero = true, .labels = {}};
  for (size_t i = 0; i < record.probes.size(); ++i) {
    ChartSeries series{record.probes[i].label, colour(i), false, true, {}};
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
  return figure("Use of the codes", "all expert matrices together", render(chart));
}

std::string pair_of(const std::string& left, const std::string& right) {
  if (left.empty() || right.empty()) return left + right;
  return "<div class=\"pair\">" + left + right + "</div>\n";
}

std::string probe_sections(const EvalRecord& record) {
  if (record.probes.empty()) return "";
  std::string out = section(weight_table(record), codes_figure(record));
  const ReportTable isolated = isolated_table(record), stream = stream_table(record);
  if (!isolated.empty()) {
    out += "<h2>" + escape_html(isolated.title) + "</h2><p class=\"soft\">" + escape_html(isolated.note) + "</p>\n";
    out += pair_of(isolated_figure(record), decile_figure(record)) + folded(isolated) + folded(decile_table(record));
  }
  if (stream.empty()) return out;
  out += "<h2>" + escape_html(stream.title) + "</h2><p class=\"soft\">" + escape_html(stream.note) + "</p>\n";
  const ChartAxis error = {.title = "relative L2 error", .log = false, .from_zero = true, .labels = {}};
  const ChartAxis share = {.title = "share of chosen experts", .log = false, .from_zero = false, .labels = {}};
  out += pair_of(stream_figure(record, "Growth of the error", "residual stream after each layer", error,
                               [](const StreamLayerProbe& layer) { return layer.relative_l2; }),
                 stream_figure(record, "Routing overlap", "experts both models chose for a token", share,
                               [](const StreamLayerProbe& layer) { return layer.topk_overlap.value; }));
  return out + folded(stream);
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
  std::string out = section(headline_table(record), record.has_kld() ? headline_figure(record) : "");
  out += section(pair_table(record));
  if (record.has_kld()) {
    out += section(tail_table(record), tail_figure(record));
    out += section(noise_table(record));
    out += section(source_table(record),
                   group_figure(record, "KL divergence by source", "source", &CandidateSummary::by_source, true));
    out += "<h2>Where it happens</h2>\n";
    out +=
        pair_of(group_figure(record, "By position in the row", "position", &CandidateSummary::by_position, false),
                group_figure(record, "By the reference's certainty", "quarter of tokens by entropy (q1: most certain)",
                             &CandidateSummary::by_entropy, false));
    return out + folded(entropy_table(record));
  }
  return out + section(source_table(record));
}

}  // namespace

std::string report_html(const EvalRecord& record) {
  const std::string title = title_of(record);
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += "<meta name=\"color-scheme\" content=\"light dark\">\n<title>trefoil eval: " + escape_html(title) +
         "</title>\n<style>";
  out += std::string(kStyle) + "</style>\n</head>\n<body>\n<main>\n<h1>" + escape_html(title) + "</h1>\n";
  out += fmt::format("<p class=\"soft\">trefoil {} eval {}{}{}</p>\n", escape_html(record.version),
                     escape_html(record.command), record.date.empty() ? "" : ", ", escape_html(record.date));
  out += verdict(record);
  if (record.command != "probe") out += score_sections(record);
  out += probe_sections(record);
  out += section(check_table(record));
  out += section(model_table(record), "", true) + section(provenance_table(record), "", true);
  if (!record.notes.empty()) out += "<h2>Notes</h2>\n<ul>\n";
  for (const std::string& note : record.notes) out += "<li>" + escape_html(note) + "</li>\n";
  if (!record.notes.empty()) out += "</ul>\n";
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace trefoil
