#include "quantize/report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "support/expect_html.h"

namespace trefoil {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

QuantizeReport small_report() {
  QuantizeReport report;
  report.environment = {"0.1.0", "cc", "OpenBLAS", "avx2", 3};
  report.source = {"Kimi \"K3\"", "c0", "1d", {{"a.safetensors", 10, "ab"}}, 4000};
  report.options.recipe = QuantizeRecipe::kTrefoil;
  report.calibration.row_length = 2;
  report.calibration.rows = {{1, 2}, {3, 4}};
  report.latent = 4;
  LayerRecord layer;
  layer.layer = 7;
  layer.tokens = 4;
  layer.tokens_per_expert = {0, 3, 5};
  MatrixRecord w1;
  w1.relative_error = 0.25;
  MatrixRecord w2;
  w2.part = ExpertPart::kW2;
  w2.relative_error = 0.5;
  w2.fallback = "identity";
  layer.matrices = {w1, w2};
  report.layers = {layer};
  report.output_tensor_bytes = 3000;
  return report;
}

TEST(QuantizeReport, TotalsAreCountedFromTheRecords) {
  const QuantizeSummary summary = summarize(small_report());
  EXPECT_EQ(summary.matrices, 2);
  EXPECT_EQ(summary.fallbacks, 1);
  EXPECT_EQ(summary.experts_without_tokens, 1);
  EXPECT_EQ(summary.thin_experts, 2) << "0 and 3 tokens against 4 columns";
  EXPECT_EQ(summary.calibration_tokens, 4);
  EXPECT_DOUBLE_EQ(summary.relative_error_w1, 0.25);
  EXPECT_DOUBLE_EQ(summary.relative_error_w2, 0.5);
  EXPECT_DOUBLE_EQ(summary.relative_error_w3, 0);
}

TEST(QuantizeReport, JsonHoldsTheFactsOneMatrixALine) {
  const std::string text = report_json(small_report());
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("source").at("folder"), "Kimi \"K3\"");
  EXPECT_EQ(json.at("calibration").at("token_ids"), (nlohmann::json{{1, 2}, {3, 4}}));
  EXPECT_EQ(json.at("layers").at(0).at("tokens_per_expert_median"), 3);
  EXPECT_EQ(json.at("totals").at("fallbacks_by_reason").at("identity"), 1);
  EXPECT_FALSE(json.at("layers").at(0).at("matrices").at(0).contains("fallback"));
  EXPECT_THAT(text, HasSubstr("\n    {\"expert\":0,\"matrix\":\"w2\",\"tokens\":0,"));
  EXPECT_THAT(text, HasSubstr("[1,2],\n"));
}

TEST(QuantizeReport, MarkdownSaysWhatAReaderMustKnow) {
  QuantizeReport report = small_report();
  const std::string card = model_card(report);
  EXPECT_THAT(card, HasSubstr("| fallbacks | 1 |"));
  EXPECT_THAT(card, HasSubstr("- 1 matrices: identity"));
  EXPECT_THAT(card, HasSubstr("2 rows (of 512 asked for) of 2 tokens"));
  EXPECT_THAT(card, HasSubstr("tags: [kimi_k3, compressed-tensors, int3]"));
  EXPECT_THAT(card, HasSubstr("byte-identical to the source"));
  report.options.num_calibration_samples = 2;
  EXPECT_THAT(model_card(report), HasSubstr("2 rows of 2 tokens"));
}

// Round to nearest reads no text: a count of its tokens would be a count of nothing.
TEST(QuantizeReport, NothingIsSaidOfTokensWhereNoneWereRead) {
  QuantizeReport report = small_report();
  report.options.recipe = QuantizeRecipe::kRtn;
  report.layers.front().tokens_per_expert = {0, 0, 0};
  for (const std::string& text : {report_markdown(report), model_card(report)}) {
    EXPECT_THAT(text, Not(HasSubstr("thinnest")));
    EXPECT_THAT(text, Not(HasSubstr("tokens")));
  }
  const auto json = nlohmann::json::parse(report_json(report));
  EXPECT_FALSE(json.at("totals").contains("thin_experts"));
  EXPECT_FALSE(json.at("totals").contains("experts_without_tokens"));
  for (const auto& [key, value] : json.at("layers").at(0).items()) EXPECT_THAT(key, Not(HasSubstr("token")));
  EXPECT_THAT(report_html(report), Not(HasSubstr("tokens, least")));
  EXPECT_THAT(report_html(small_report()), HasSubstr("tokens, least"));
}

TEST(QuantizeReport, MarkdownListsTheThinnestExperts) {
  QuantizeReport report = small_report();
  LayerRecord layer;
  layer.layer = 8;
  layer.tokens_per_expert = {2, 4, 0, 3};
  report.layers.push_back(layer);
  const std::string text = report_markdown(report);
  EXPECT_THAT(text, HasSubstr("tokens |\n|---:|---:|---:|\n| 7 | 0 | 0 |\n| 8 | 2 | 0 |\n| 8 | 0 | 2 |\n| 7 | 1 | 3 |\n"
                              "| 8 | 3 | 3 |\n\n"))
      << "4 and 5 tokens are not thin at 4 columns";
  report.layers.back().tokens_per_expert.assign(30, 1);
  EXPECT_THAT(report_markdown(report), HasSubstr("\n22 more are in the report.\n"));
  report.layers.clear();
  EXPECT_THAT(report_markdown(report), Not(HasSubstr("thinnest")));
}

// Two layers with all that a page has figures for.
QuantizeReport report_with_times() {
  QuantizeReport report = small_report();
  report.layers.push_back(report.layers.front());
  report.layers.back().layer = 8;
  report.layers.front().times.gate_up.add(Phase::kMoments, {2, 8e9});
  report.layers.back().times.gate_up.add(Phase::kMoments, {2, 8e9});
  report.layers.back().times.down.add(Phase::kEncode, {1, 0});
  report.steps = {{StepKind::kAttention, 7, 1.5, 0},
                  {StepKind::kAttention, 7, 0.5, 0},
                  {StepKind::kExperts, 8, 6, 10},
                  {StepKind::kCopying, -1, 2, 0}};
  return report;
}

TEST(QuantizeReport, TimesAreSummedByStepAndByPhase) {
  const auto json = nlohmann::json::parse(report_json(report_with_times()));
  EXPECT_EQ(json.at("layers").at(0).at("seconds_by_step"), (nlohmann::json{{"attention", 2.0}}));
  EXPECT_EQ(json.at("layers").at(1).at("seconds_by_step"), (nlohmann::json{{"experts", 6.0}}));
  EXPECT_EQ(json.at("layers").at(0).at("seconds"), 2.0);
  EXPECT_EQ(json.at("totals").at("seconds_by_step"),
            (nlohmann::json{{"attention", 2.0}, {"experts", 6.0}, {"copying", 2.0}}));
  const auto& phases = json.at("totals").at("phases");
  EXPECT_EQ(phases.at("w1+w3"), (nlohmann::json{{"moments", {{"cpu_seconds", 4.0}, {"gflop", 16.0}}}}));
  EXPECT_EQ(phases.at("w2"), (nlohmann::json{{"encode", {{"cpu_seconds", 1.0}, {"gflop", 0.0}}}}));
}

TEST(QuantizeReport, PageHasEveryPartAndEscapesNames) {
  QuantizeReport report = report_with_times();
  report.source.folder = "<script>\"K3\"";
  report.layers.front().matrices.back().fallback = "<b>why";
  report.calibration.files = {{"<file>", 10, "ab", 3, 1, 3, {}}};
  report.calibration.sources = {{"<source>", 3}};
  report.calibration.held_out = HeldOutOverlap{{{"<held>", "ef", {5, 1, 2, 1, 900, 70}}}, 1};
  const std::string page = report_html(report);
  expect_balanced(page);
  expect_self_contained(page);
  for (const char* bad : {"<script", "<b>", "<file>", "<source>", "<held>"})
    EXPECT_EQ(page.find(bad), std::string::npos) << bad;
  EXPECT_THAT(page, HasSubstr("<td>attention</td><td>2.00</td><td>20.0 %</td>"));
  EXPECT_THAT(page, HasSubstr("<td>w1+w3 moments</td><td>4.00</td><td>80.0 %</td><td>16.00</td><td>4.0</td>"));
  EXPECT_THAT(page, HasSubstr("<td>&lt;b&gt;why</td><td>1</td>"));
  EXPECT_THAT(page, HasSubstr("<td>7</td><td>0</td><td>0</td>")) << "the thinnest expert";
  size_t plots = 0;
  for (size_t at = 0; (at = page.find("<svg", at)) != std::string::npos; ++at) ++plots;
  EXPECT_EQ(plots, 3u) << "errors, tokens, time";
  EXPECT_EQ(page.find(">nan"), std::string::npos);
}

TEST(QuantizeReport, PageOfAnEmptyReportIsWhole) {
  expect_balanced(report_html(QuantizeReport()));
}

TEST(QuantizeReport, CalibrationIsDescribed) {
  QuantizeReport report = small_report();
  report.calibration.files = {{"a|`b\n", 10, "ab", 3, 2, 3, 1.0}, {"c", 10, "cd", 2, {}, 1, 3.0}};
  report.calibration.sources = {{"wiki", 3}, {"code", 1}};
  report.calibration.scripts = {{"Latin", 0.75}, {"Han", 0.25}};
  report.calibration.frozen = FrozenFile{"f.safetensors", "0123"};
  report.calibration.held_out = HeldOutOverlap{{{"h.jsonl", "ef", {5, 1, 2, 1, 900, 70}}}, 1};
  const std::string text = report_markdown(report);
  EXPECT_THAT(text,
              HasSubstr("| a  b  | 2 of 3 | 3 | 75.0 % | 25.0 % |\n| c | 2 in the file | 1 | 25.0 % | 75.0 % |\n"));
  EXPECT_THAT(text, HasSubstr("Tokens by source: wiki 3, code 1."));
  EXPECT_THAT(text, HasSubstr("Latin 75.0 %, Han 25.0 %."));
  EXPECT_THAT(text, HasSubstr("frozen set f.safetensors, SHA-256 0123"));
  EXPECT_THAT(text,
              HasSubstr("h.jsonl: 2 of 5 documents share a passage of 64 tokens with the calibration, 1 of them"));
  const auto json = nlohmann::json::parse(report_json(report)).at("calibration");
  EXPECT_EQ(json.at("files").at(1).at("weight"), 3.0);
  EXPECT_EQ(json.at("files").at(1).at("tokens"), 1);
  EXPECT_EQ(json.at("files").at(0).at("documents_used"), 2);
  EXPECT_EQ(json.at("sources").at(0).at("source"), "wiki");
  EXPECT_EQ(json.at("scripts").at("Han"), 0.25);
  EXPECT_EQ(json.at("frozen").at("sha256"), "0123");
  EXPECT_EQ(json.at("held_out").at("run_length"), 64);
  EXPECT_EQ(json.at("held_out").at("files").at(0).at("documents_overlapping"), 2);
}

TEST(QuantizeReport, RtnMentionsNoCalibration) {
  QuantizeReport report = small_report();
  report.options.recipe = QuantizeRecipe::kRtn;
  EXPECT_FALSE(nlohmann::json::parse(report_json(report)).contains("calibration"));
  EXPECT_THAT(report_markdown(report), Not(HasSubstr("| calibration |")));
}

}  // namespace
}  // namespace trefoil
