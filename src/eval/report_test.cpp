#include "eval/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "eval/report_tables.h"
#include "support/expect_html.h"

namespace trefoil {
namespace {

GroupSummary group(const std::string& name, double kld) {
  return {name, 100, 10, {12.5, 0.5}, {0.02, 0.001}, {kld, kld / 10}, {0.9, 0.01}};
}

CandidateSummary candidate(const std::string& label, double kld) {
  CandidateSummary c;
  c.label = label;
  c.nll = {2.5, 0.01};
  c.ppl = {12.18, 0.12};
  c.ln_ppl_ratio = {0.02, 0.001};
  c.ppl_ratio = {1.0202, 0.00102};
  c.nll_correlation = 0.99;
  c.kld = {kld, kld / 50};
  for (size_t i = 0; i < c.kld_quantiles.size(); ++i) c.kld_quantiles[i] = {kld * static_cast<double>(i + 1), kld / 20};
  c.kld_max = 20 * kld;
  c.top1 = {0.93, 0.002};
  c.top5 = {0.91, 0.002};
  c.delta_p_mean = {-0.004, 0.0004};
  c.delta_p_rms = {0.05, 0.001};
  for (const char* source : {"python", "<b>\"sql\"&"}) c.by_source.push_back(group(source, kld));
  for (const char* position : {"1-15", "16-31", "32-63"}) c.by_position.push_back(group(position, kld));
  for (const char* quarter : {"q1", "q2", "q3", "q4"}) c.by_entropy.push_back(group(quarter, kld));
  c.kld_tail = {{0.5, kld}, {0.1, kld * 3}, {0.01, kld * 9}, {0.001, kld * 30}};
  return c;
}

ProbeSummary probe(const std::string& label) {
  ProbeSummary p;
  p.label = label;
  p.layers = {1, 2};
  const ErrorSpread spread{50, 0.03, 0.02, 0.06, 0.09, 0.2};
  p.weights = {{"w1",
                "int3 dense g64",
                64,
                1000,
                0.18,
                0.984,
                {1, 2, 3, 4, 4, 3, 2, 1},
                -4,
                0.01,
                0.001,
                0.1,
                0.4,
                {0.18, 0.19}}};
  p.isolated = {{1, spread, spread, spread, spread, spread, spread},
                {2, spread, spread, spread, spread, spread, spread}};
  p.load_deciles = {{0, 3, 10, spread}, {9, 3, 400, spread}};
  for (int64_t layer = 0; layer < 3; ++layer)
    p.stream.push_back({layer, spread, 0.17, 0.99, {0.95, 0.01}, {0.97, 0.01}, {0.001, 0.0001}});
  return p;
}

EvalRecord sample(const std::string& name = "a<script>alert(1)</script>&\"'|") {
  EvalRecord record;
  record.command = "kld";
  record.version = "0.1.0";
  record.settings = {{"numerics", "f32"}, {"seed", "1"}};
  record.machine = {{"cpu", "Some <CPU> & friends"}};
  record.texts = {{"evaluation.jsonl", std::string(64, 'a'), 38}};
  record.token_sha256 = std::string(64, 'b');
  record.sources = {"python", "<b>\"sql\"&"};
  record.models = {{"original", "tiny-k3", "c", "d", "mxfp4 g32", 123456789, ""},
                   {name, "out", "e", "f", "int3 dense g64", 100000000, "no"}};
  record.reference = {200, 20, {2.48, 0.01}, {11.94, 0.12}, {2.4, 0.02}, {group("python", 0), group("<b>\"sql\"&", 0)}};
  record.candidates = {candidate(name, 0.05), candidate("stock", 0.09)};
  record.pairs = {{"stock", name, {0.55, 0.02}, {-0.04, 0.002}, {-0.01, 0.001}, {0.02, 0.003}}};
  record.noise = {{"batch", "one row at a time", 20, true, {0, 0}, {0, 0}, {1, 0}, 0, 0, {}},
                  {"bf16",
                   "bf16 instead of f32",
                   20,
                   false,
                   {0.001, 0.0001},
                   {0, 0.001},
                   {0.99, 0.001},
                   0.01,
                   0.1,
                   {{0.5, 0.0005}, {0.01, 0.01}}}};
  record.probes = {probe(name)};
  record.checks = {{"kld.mean>0.05", "candidates.x.kld.mean", 0.05, false}};
  record.notes = {"a note with <angle> brackets"};
  return record;
}

TEST(ReportHtml, TagsBalance) {
  expect_balanced(report_html(sample()));
  EvalRecord ppl = sample();
  ppl.command = "ppl";
  expect_balanced(report_html(ppl));
  ppl.command = "probe";
  expect_balanced(report_html(ppl));
  expect_balanced(report_html(EvalRecord()));
}

TEST(ReportHtml, NothingComesFromElsewhereAndNothingRuns) {
  expect_self_contained(report_html(sample("plain")));
}

TEST(ReportHtml, TextIsEscaped) {
  const std::string html = report_html(sample());
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_NE(html.find("a&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;|"), std::string::npos);
  EXPECT_EQ(html.find("<b>"), std::string::npos);
  EXPECT_EQ(html.find("<angle>"), std::string::npos);
  EXPECT_EQ(html.find("<CPU>"), std::string::npos);
}

TEST(ReportText, SaysWhetherTheTextWasCalibratedOn) {
  EvalRecord record = sample("plain");
  record.models.back().held_out = "no: none of 38 documents shares a passage";
  const std::string said = "Was the text calibrated on?\nplain     no: none of 38 documents shares a passage\n\n";
  EXPECT_NE(report_text(record).find(said), std::string::npos) << report_text(record);
  record.command = "probe";
  EXPECT_NE(report_text(record).find(said), std::string::npos);
  record.models.back().held_out.clear();
  EXPECT_EQ(report_text(record).find("calibrated"), std::string::npos);
}

TEST(ReportHtml, PlotsAreThere) {
  const std::string html = report_html(sample("plain"));
  size_t plots = 0;
  for (size_t at = 0; (at = html.find("<svg", at)) != std::string::npos; ++at) ++plots;
  EXPECT_EQ(plots, 10u);
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_EQ(html.find("inf"), std::string::npos);
}

TEST(ReportHtml, FailedConditionsAreSaid) {
  EvalRecord record = sample();
  EXPECT_NE(report_html(record).find("All conditions passed"), std::string::npos);
  record.checks[0].violated = true;
  EXPECT_NE(report_html(record).find("1 of 1 conditions failed"), std::string::npos);
}

TEST(ReportJson, HasTheNumbersUnderTheirNames) {
  const EvalRecord record = sample("trefoil");
  const auto json = nlohmann::json::parse(report_json(record));
  EXPECT_EQ(json["candidates"]["trefoil"]["kld"]["mean"], 0.05);
  EXPECT_EQ(json["candidates"]["trefoil"]["kld"]["mean_se"], 0.001);
  EXPECT_EQ(json["pairs"]["trefoil/stock"]["kld_ratio"], 0.55);
  EXPECT_EQ(json["noise"]["batch"]["exact"], true);
  EXPECT_EQ(json["candidates"]["trefoil"]["probe"]["isolated"]["1"]["normed_sum"]["median"], 0.02);
  EXPECT_EQ(json["models"]["trefoil"]["tensor_bytes"], 100000000);
  EXPECT_EQ(json["checks"][0]["violated"], false);
}

TEST(ReportJson, MissingValuesAreNullAndBadBytesAreReplaced) {
  EvalRecord record = sample("x\xFF");
  record.candidates[0].kld.standard_error = kNoValue;
  const auto json = nlohmann::json::parse(report_json(record));
  EXPECT_TRUE(json["candidates"]["x\xEF\xBF\xBD"]["kld"]["mean_se"].is_null());
}

TEST(ReportJson, NamesOfAnEmptyRunAreThoseOfTheResult) {
  const EvalRecord full = sample("t");
  EvalRecord blank = full;
  for (CandidateSummary& c : blank.candidates) {
    CandidateSummary empty;
    empty.label = c.label;
    for (const auto member :
         {&CandidateSummary::by_source, &CandidateSummary::by_position, &CandidateSummary::by_entropy}) {
      for (const GroupSummary& g : c.*member) {
        (empty.*member).emplace_back();
        (empty.*member).back().name = g.name;
      }
    }
    c = empty;
  }
  const std::vector<NamedValue> expected = named_values(full), found = named_values(blank);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].name, expected[i].name);
}

TEST(ReportMarkdown, CellsCannotBreakTheTable) {
  const std::string text = report_markdown(sample("a|b\nc"));
  EXPECT_NE(text.find("a\\|b c"), std::string::npos);
  EXPECT_EQ(text.find("a|b"), std::string::npos);
}

TEST(ReportMarkdown, EveryRowHasTheHeadersWidth) {
  const EvalRecord record = sample("t");
  for (const ReportTable& table :
       {headline_table(record), tail_table(record), pair_table(record), noise_table(record), source_table(record),
        entropy_table(record), weight_table(record), isolated_table(record), decile_table(record), stream_table(record),
        check_table(record), model_table(record), provenance_table(record)}) {
    EXPECT_FALSE(table.empty()) << table.title;
    for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.header.size()) << table.title;
  }
}

TEST(ReportFormat, NumbersCarryTheirError) {
  EXPECT_EQ(format_estimate({0.05123, 0.00031}), "0.05123 ± 0.00031");
  EXPECT_EQ(format_estimate({37.0326, 1.234}), "37.0 ± 1.2");
  EXPECT_EQ(format_estimate({0.05123, kNoValue}), "0.05123");
  EXPECT_EQ(format_estimate({}), "-");
  EXPECT_EQ(format_estimate({2.5e-6, 1.2e-7}), "2.50e-06 ± 1.2e-07");
  EXPECT_EQ(format_estimate({0, 0}), "0 ± 0");
  EXPECT_EQ(format_percent({0.93214, 0.0012}), "93.21 ± 0.12");
  EXPECT_EQ(format_number(1234.5678), "1235");
  EXPECT_EQ(format_number(0.00012345), "0.0001234");
}

}  // namespace
}  // namespace trefoil
