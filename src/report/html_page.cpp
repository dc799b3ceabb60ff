#include "report/html_page.h"

#include <fmt/format.h>

#include "report/svg_chart.h"

namespace trefoil {
namespace {

constexpr size_t kColours = 6;

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

}  // namespace

std::string series_class(size_t index) {
  return fmt::format("s{}", index % kColours);
}

std::string html_page(std::string_view head, std::string_view title, std::string_view subtitle,
                      const std::string& body) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" + escape_html(head) + "</title>\n<style>";
  out += std::string(kStyle) + "</style>\n</head>\n<body>\n<main>\n<h1>" + escape_html(title) + "</h1>\n";
  out += "<p class=\"soft\">" + escape_html(subtitle) + "</p>\n";
  return out + body + "</main>\n</body>\n</html>\n";
}

std::string html_table(const ReportTable& table, Cells cells) {
  std::string out =
      fmt::format("<div class=\"scroll\"><table{}><thead><tr>", cells == Cells::kTexts ? " class=\"texts\"" : "");
  for (const std::string& name : table.header) out += "<th scope=\"col\">" + escape_html(name) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (const std::string& text : row) out += "<td>" + escape_html(text) + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_heading(std::string_view title, std::string_view note) {
  std::string out = "<h2>" + escape_html(title) + "</h2>\n";
  if (!note.empty()) out += "<p class=\"soft\">" + escape_html(note) + "</p>\n";
  return out;
}

std::string html_section(const ReportTable& table, const std::string& figures, Cells cells) {
  if (table.empty()) return "";
  return html_heading(table.title, table.note) + figures + html_table(table, cells);
}

std::string html_folded(const ReportTable& table) {
  if (table.empty()) return "";
  return "<details><summary>" + escape_html(table.title) + ", all numbers</summary>\n" + html_table(table) +
         "</details>\n";
}

std::string html_figure(std::string_view title, std::string_view explanation, const std::string& svg) {
  if (svg.empty()) return "";
  return fmt::format("<figure><figcaption>{} <span>{}</span></figcaption>{}</figure>\n", escape_html(title),
                     escape_html(explanation), svg);
}

std::string html_pair(const std::string& left, const std::string& right) {
  if (left.empty() || right.empty()) return left + right;
  return "<div class=\"pair\">" + left + right + "</div>\n";
}

}  // namespace trefoil
