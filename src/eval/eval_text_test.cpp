#include "eval/eval_text.h"

#include <gtest/gtest.h>

#include <set>

#include "eval/held_out.h"
#include "support/test_support.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using testing::TempDir;
using testing::write_text;

Tokenizer tokenizer() {
  return Tokenizer::load(testing::tiny_k3_dir());
}

std::string ids_line(int first, int count, const std::string& source) {
  std::string line = "{\"source\": \"" + source + "\", \"input_ids\": [";
  for (int i = 0; i < count; ++i) line += (i > 0 ? "," : "") + std::to_string(first + i);
  return line + "]}\n";
}

TEST(EvalText, PacksEverySourceApart) {
  TempDir temp;
  write_text(temp.path() / "a.jsonl",
             ids_line(0, 5, "x") + ids_line(100, 7, "y") + ids_line(50, 6, "x") + ids_line(7, 3, "z"));
  const LoadedText loaded = load_eval_text(std::vector{temp.path() / "a.jsonl"}, tokenizer(), {.ctx_size = 4});
  ASSERT_EQ(loaded.text.rows.size(), 3u);  // x: 11 ids, two rows; y: 7 ids, one; z: 3 ids, none
  EXPECT_EQ(loaded.text.rows[0].ids, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(loaded.text.rows[1].ids, (std::vector<int32_t>{4, 50, 51, 52}));
  EXPECT_EQ(loaded.text.rows[2].ids, (std::vector<int32_t>{100, 101, 102, 103}));
  EXPECT_EQ(loaded.text.sources, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(loaded.text.rows[2].source, (std::vector<int32_t>{1, 1, 1, 1}));
  EXPECT_EQ(loaded.text.scored_tokens(), 9);
  EXPECT_EQ(loaded.files[0].documents, 4);
  ASSERT_EQ(loaded.notes.size(), 2u);
  EXPECT_EQ(loaded.notes[0], "source 'z' was left out: its 3 tokens do not fill a row of 4");
  EXPECT_EQ(loaded.notes[1], "6 tokens behind the last whole rows were left out");
}

TEST(EvalText, DocumentsApart) {
  TempDir temp;
  write_text(temp.path() / "a.jsonl", ids_line(0, 5, "x") + ids_line(100, 1, "y") + ids_line(50, 6, "x"));
  const LoadedText loaded =
      load_eval_text(std::vector{temp.path() / "a.jsonl"}, tokenizer(), {.ctx_size = 4, .per_document = true});
  ASSERT_EQ(loaded.text.rows.size(), 3u);  // 5 = 4 and a single id; 1; 6 = 4 + 2
  EXPECT_EQ(loaded.text.rows[0].ids, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(loaded.text.rows[2].ids, (std::vector<int32_t>{54, 55}));
}

TEST(EvalText, SomeRowsAreSpreadEvenly) {
  TempDir temp;
  write_text(temp.path() / "a.jsonl", ids_line(0, 20, "x") + ids_line(100, 20, "y"));
  const LoadedText loaded =
      load_eval_text(std::vector{temp.path() / "a.jsonl"}, tokenizer(), {.ctx_size = 4, .max_rows = 5});
  std::vector<int32_t> firsts;
  for (const EvalRow& row : loaded.text.rows) firsts.push_back(row.ids[0]);
  EXPECT_EQ(firsts, (std::vector<int32_t>{0, 8, 16, 104, 112}));
}

TEST(EvalText, RefusesIdsOutsideTheVocabulary) {
  TempDir temp;
  write_text(temp.path() / "a.jsonl", ids_line(4090, 10, "x"));
  EXPECT_THROW(load_eval_text(std::vector{temp.path() / "a.jsonl"}, tokenizer(), {.ctx_size = 4}), Error);
}

TEST(EvalText, TheHashKnowsWhereRowsEnd) {
  EvalText a, b;
  a.rows = {{{1, 2, 3, 4}, {0, 0, 0, 0}}};
  b.rows = {{{1, 2}, {0, 0}}, {{3, 4}, {0, 0}}};
  EXPECT_NE(token_hash(a), token_hash(b));
  EXPECT_EQ(token_hash(a), token_hash(a));
}

std::string verdict(const std::string& report, const EvalText& text) {
  TempDir temp;
  if (!report.empty()) write_text(temp.path() / "quantization_report.json", report);
  const std::vector<TextFacts> files = {{"evaluation.jsonl", "cafe", 1}};
  return held_out_verdict(temp.path(), files, text);
}

std::string report_with_ids(int first, int count) {
  std::string ids;
  for (int i = 0; i < count; ++i) ids += (i > 0 ? "," : "") + std::to_string(first + i);
  return R"({"layers": [{"matrices": [1]}], "calibration": {"files": [{"sha256": "beef"}], "token_ids": [[)" + ids +
         "]]}}";
}

TEST(HeldOut, SaysWhatTheReportAllows) {
  EvalText text;
  std::vector<int32_t>& document = text.documents.emplace_back();
  for (int i = 0; i < 200; ++i) document.push_back(1000 + i);
  EXPECT_EQ(verdict("", text), "unknown: no quantization_report.json");
  EXPECT_EQ(verdict("{}", text), "no: it was not calibrated");
  EXPECT_EQ(verdict(R"({"calibration": 3})", text),
            "unknown: quantization_report.json does not say what was calibrated on");
  EXPECT_EQ(verdict(R"({"calibration": {"files": [{"sha256": "cafe"}]}})", text),
            "yes: the same text file was calibrated on");
  EXPECT_EQ(verdict(R"({"calibration": {"files": []}})", text), "unknown: no calibration token ids were recorded");
  EXPECT_EQ(verdict(report_with_ids(1200, 500), text),
            "no: none of 1 documents shares a passage of 64 tokens with the calibration");
  EXPECT_EQ(verdict(report_with_ids(937, 126), text),
            "no: none of 1 documents shares a passage of 64 tokens with the calibration");  // 63 are
  EXPECT_EQ(verdict(report_with_ids(937, 127), text),
            "partly: 1 of 1 documents share a passage of 64 tokens with the calibration; 64 of 200 tokens");
  EXPECT_EQ(verdict(report_with_ids(1050, 90), text),
            "partly: 1 of 1 documents share a passage of 64 tokens with the calibration; 90 of 200 tokens");
  EXPECT_EQ(verdict(report_with_ids(900, 500), text),
            "yes: 1 of 1 documents share a passage of 64 tokens with the calibration; 200 of 200 tokens");
  EXPECT_THROW(verdict("{", text), Error);
}

// The last 40 ids of one document and the first 40 of the next, as every page of a manual ends and begins alike: 80 that
// follow each other in a row, and no passage of either document.
TEST(HeldOut, WhatEndsADocumentAndBeginsTheNextIsNoPassage) {
  TempDir temp;
  write_text(temp.path() / "a.jsonl", ids_line(0, 140, "x") + ids_line(1100, 140, "x"));
  const LoadedText loaded = load_eval_text(std::vector{temp.path() / "a.jsonl"}, tokenizer(), {.ctx_size = 256});
  std::string calibrated;
  for (int i = 0; i < 40; ++i) calibrated += std::to_string(100 + i) + ",";
  for (int i = 0; i < 40; ++i) calibrated += (i > 0 ? "," : "") + std::to_string(1100 + i);
  EXPECT_EQ(verdict(R"({"calibration": {"files": [], "token_ids": [[)" + calibrated + "]]}}", loaded.text),
            "no: none of 2 documents shares a passage of 64 tokens with the calibration");
}

// Whether rows hold it or not: one row was asked for, and what is behind the last whole row is left out.
TEST(HeldOut, EveryDocumentIsComparedAsAWhole) {
  TempDir temp;
  write_text(temp.path() / "a.jsonl", ids_line(0, 300, "x") + ids_line(1000, 100, "x"));
  for (const bool per_document : {false, true}) {
    const LoadedText loaded = load_eval_text(std::vector{temp.path() / "a.jsonl"}, tokenizer(),
                                             {.ctx_size = 32, .per_document = per_document, .max_rows = 1});
    EXPECT_EQ(verdict(report_with_ids(1000, 100), loaded.text),
              "partly: 1 of 2 documents share a passage of 64 tokens with the calibration; 100 of 400 tokens");
  }
}

}  // namespace
}  // namespace trefoil
