#include "quantize/calibration.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "checkpoint/file.h"
#include "checkpoint/safetensors.h"
#include "quantize/frozen_calibration.h"
#include "support/compress.h"
#include "support/expect_error.h"
#include "support/test_support.h"
#include "text/pack_rows.h"
#include "text/shared_runs.h"
#include "trefoil/tokenizer.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::load(testing::tiny_k3_dir());
  return tokenizer;
}

struct Notes : ProgressSink {
  void note(std::string_view message) override { messages.emplace_back(message); }
  std::vector<std::string> messages;
};

class Calibration : public ::testing::Test {
 protected:
  fs::path file(const std::string& name, const std::string& text) {
    testing::write_text(folder_.path() / name, text);
    return folder_.path() / name;
  }
  // `documents` of five ids each, all of them `id`.
  fs::path constant(const std::string& name, int32_t id, int documents) {
    std::string lines;
    for (int i = 0; i < documents; ++i) lines += fmt::format("{{\"input_ids\": [{0}, {0}, {0}, {0}, {0}]}}\n", id);
    return file(name, lines);
  }
  QuantizeOptions options(std::vector<CalibrationSource> sources, int64_t rows, int64_t row_length) {
    QuantizeOptions o;
    o.source = testing::tiny_k3_dir();
    o.calibration = std::move(sources);
    o.num_calibration_samples = rows;
    o.max_seq_length = row_length;
    return o;
  }
  CalibrationSet load(const QuantizeOptions& o) {
    notes_.messages.clear();
    return load_calibration(o, config_, notes_);
  }
  ::testing::AssertionResult refused(const QuantizeOptions& o, ErrorCode code, const std::string& part) {
    return testing::fails_with(code, part, [&] { load(o); });
  }
  fs::path path(const std::string& name) { return folder_.path() / name; }

  ModelConfig config_ = load_model_config(testing::tiny_k3_dir());
  Notes notes_;

 private:
  testing::TempDir folder_;
};

const fs::path& bundled() {
  static const fs::path path = testing::text_dir() / "calibration.jsonl";
  return path;
}

std::vector<int32_t> joined(const CalibrationSet& set) {
  std::vector<int32_t> ids;
  for (const auto& row : set.rows) ids.insert(ids.end(), row.begin(), row.end());
  return ids;
}

// --- rows ---

TEST_F(Calibration, OneFileGivesTheRowsOfPackRows) {
  const std::vector<Document> documents = read_documents(bundled());
  for (const uint64_t seed : {0, 1, 7}) {
    QuantizeOptions o = options({bundled()}, 24, 100);
    o.seed = seed;
    const PackedRows packed = pack_rows(documents, tiny(), {100, 24, seed});
    const CalibrationSet set = load(o);
    EXPECT_EQ(joined(set), packed.ids);
    EXPECT_EQ(set.token_ids_sha256, packed.sha256);
    EXPECT_EQ(set.documents_used, packed.num_documents);
    EXPECT_EQ(set.files.at(0).documents, static_cast<int64_t>(documents.size()));
    EXPECT_EQ(set.files.at(0).tokens, 2400);
    EXPECT_FALSE(set.files.at(0).weight);
    o.calibration[0].weight = 5;
    EXPECT_EQ(joined(load(o)), packed.ids) << "a single file's weight changes nothing";
  }
}

TEST_F(Calibration, CompressedFilesGiveTheSameRows) {
  const std::string text = testing::read_text(bundled());
  QuantizeOptions o = options({bundled()}, 24, 100);
  o.seed = 2;
  const CalibrationSet plain = load(o);
  o.calibration = {file("a.jsonl.gz", testing::gzip(text))};
  EXPECT_EQ(load(o).rows, plain.rows);
  o.calibration = {file("a.jsonl.zst", testing::zstd(text))};
  EXPECT_EQ(load(o).rows, plain.rows);
  const std::string gzip = testing::gzip(text);
  o.calibration = {file("b.jsonl.gz", gzip.substr(0, gzip.size() - 9))};
  EXPECT_TRUE(refused(o, ErrorCode::kCorrupt, "b.jsonl.gz:"));
}

TEST_F(Calibration, ConversationsHoldSpecialTokens) {
  const CalibrationSet set =
      load(options({file("chat.jsonl", R"({"messages": [{"role": "user", "content": "<|open|> hi"}]})")}, 1, 6));
  const auto& row = set.rows.at(0);
  EXPECT_EQ(row.at(0), *tiny().special_id("<|open|>"));
  EXPECT_EQ(std::count(row.begin(), row.end(), row[0]), 1);
}

// --- mixing ---

std::vector<int32_t> first_ids(const CalibrationSet& set) {
  std::vector<int32_t> ids;
  for (const auto& row : set.rows) {
    EXPECT_EQ(std::set<int32_t>(row.begin(), row.end()).size(), 1u) << "a row is of one file";
    ids.push_back(row.front());
  }
  return ids;
}

// By hand: (rows + 1/2) / weight is 0.167, 0.5, 0.5 at first.
TEST_F(Calibration, WeightsAreSharesOfTheRowsInterleaved) {
  const auto a = constant("a.jsonl", 1, 100), b = constant("b.jsonl", 2, 100), c = constant("c.jsonl", 3, 100);
  const CalibrationSet set = load(options({{a, 3}, {b, 1}, c}, 10, 8));
  EXPECT_THAT(first_ids(set), ElementsAre(1, 1, 2, 3, 1, 1, 1, 2, 3, 1));
  EXPECT_EQ(set.files.at(0).tokens, 48);
  EXPECT_EQ(set.files.at(2).tokens, 16);
  EXPECT_EQ(set.files.at(0).documents, 100);
  EXPECT_EQ(set.files.at(0).documents_used, 10) << "six rows of 8 ids out of documents of 5";
  EXPECT_EQ(set.files.at(2).documents_used, 4);
  EXPECT_EQ(set.files.at(2).weight, 1.0) << "one that is not given beside others that are";
  EXPECT_THAT(notes_.messages, ElementsAre(HasSubstr("rows of 8 tokens")));
  const CalibrationSet pool = load(options({a, b, c}, 10, 8));
  EXPECT_EQ(pool.files.at(0).tokens, 80) << "without weights the first documents, in order";
}

TEST_F(Calibration, SharesHoldToHalfARowAtEveryLength) {
  const std::vector<double> weights = {0.5, 0.3, 0.15, 0.05};
  std::vector<CalibrationSource> sources;
  for (size_t i = 0; i < weights.size(); ++i) {
    sources.emplace_back(constant(fmt::format("{}.jsonl", i), static_cast<int32_t>(i), 300), weights[i]);
  }
  for (const int64_t rows : {1, 7, 20, 100, 250}) {
    const CalibrationSet set = load(options(sources, rows, 4));
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(set.files[i].tokens) / 4, weights[i] * static_cast<double>(rows), 1.0) << rows;
    }
  }
}

TEST_F(Calibration, TheSeedOrdersDocumentsWithinEachFile) {
  QuantizeOptions o = options({{bundled(), 1}, {constant("b.jsonl", 9, 100), 1}}, 8, 50);
  const CalibrationSet zero = load(o);
  o.seed = 4;
  const CalibrationSet four = load(o);
  EXPECT_EQ(load(o).rows, four.rows);
  EXPECT_NE(zero.rows, four.rows);
  for (size_t i = 1; i < 8; i += 2) EXPECT_EQ(zero.rows[i], four.rows[i]) << "the second file's are all alike";
}

TEST_F(Calibration, AFileThatIsUsedUpLeavesItsRowsToTheOthersAndIsNamed) {
  const CalibrationSet set =
      load(options({{constant("a.jsonl", 1, 100), 1}, {constant("short.jsonl", 2, 4), 1}}, 10, 8));
  EXPECT_THAT(first_ids(set), ElementsAre(1, 2, 1, 2, 1, 1, 1, 1, 1, 1));
  ASSERT_EQ(notes_.messages.size(), 2u) << "the other is about rows of 8 tokens";
  EXPECT_THAT(notes_.messages[0], HasSubstr("short.jsonl is used up: 20.0 %"));
  EXPECT_THAT(notes_.messages[0], HasSubstr("asked for were 50.0 %"));
}

TEST_F(Calibration, TextThatFillsNoRowIsRefused) {
  const auto a = constant("a.jsonl", 1, 1), b = constant("b.jsonl", 2, 1);
  EXPECT_TRUE(refused(options({{a, 1}, {b, 1}}, 4, 8), ErrorCode::kInvalidArgument, "every file less than one"));
  EXPECT_TRUE(refused(options({a}, 4, 8), ErrorCode::kInvalidArgument, "1 documents hold 5 token ids"));
  EXPECT_EQ(load(options({a, b}, 4, 8)).rows.size(), 1u) << "together they do";
  EXPECT_THAT(notes_.messages, ElementsAre(HasSubstr("rows of 8 tokens"), HasSubstr("fills 1 of 4 rows")));
}

TEST_F(Calibration, SourcesAndScriptsAreOfTheRowsInUse) {
  const CalibrationSet set =
      load(options({file("a.jsonl", R"({"text": "abcd", "source": "en"}
{"text": "дада", "source": "ru"}
{"text": "never reached", "source": "no"})")},
                   1, static_cast<int64_t>(tiny().encode("abcd").size() + tiny().encode("дада").size())));
  ASSERT_EQ(set.sources.size(), 2u);
  EXPECT_GE(set.sources[0].tokens, set.sources[1].tokens);
  ASSERT_EQ(set.scripts.size(), 2u);
  EXPECT_DOUBLE_EQ(set.scripts[0].share, 0.5);
}

// --- frozen sets ---

class FrozenCalibration : public Calibration {
 protected:
  // A saved set of 6 rows of 40 ids from two weighted files, and the options to use it.
  QuantizeOptions frozen() {
    QuantizeOptions o = options({{bundled(), 2}, {file("b.txt", std::string(4000, 'b')), 1}}, 6, 40);
    o.seed = 3;
    o.save_calibration = path("frozen.safetensors");
    saved_ = load(o);
    return options({path("frozen.safetensors")}, 6, 40);
  }
  void edit(const std::string& from, const std::string& to) {
    std::string bytes = testing::read_text(path("frozen.safetensors"));
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ASSERT_EQ(from.size(), to.size());
    testing::write_text(path("frozen.safetensors"), bytes.replace(at, from.size(), to));
  }
  CalibrationSet saved_;
};

TEST_F(FrozenCalibration, GivesExactlyTheSavedIdsAndWhereTheyCameFrom) {
  const CalibrationSet set = load(frozen());
  EXPECT_EQ(set.rows, saved_.rows);
  EXPECT_EQ(set.token_ids_sha256, saved_.token_ids_sha256);
  EXPECT_EQ(set.documents_used, saved_.documents_used);
  ASSERT_EQ(set.files.size(), 2u);
  EXPECT_EQ(set.files[0].sha256, saved_.files[0].sha256);
  EXPECT_EQ(set.files[0].tokens, saved_.files[0].tokens);
  EXPECT_EQ(set.files[0].documents_used, saved_.files[0].documents_used);
  EXPECT_EQ(set.files[1].weight, 1.0);
  EXPECT_EQ(set.sources.size(), saved_.sources.size());
  EXPECT_EQ(set.frozen->sha256, sha256_of_file(path("frozen.safetensors")));
  EXPECT_FALSE(saved_.frozen);
}

TEST_F(FrozenCalibration, SavingTwiceGivesTheSameBytesAndReplacesNothingElse) {
  frozen();
  const std::string bytes = testing::read_text(path("frozen.safetensors"));
  QuantizeOptions again = options({{bundled(), 2}, {path("b.txt"), 1}}, 6, 40);
  again.seed = 3;
  again.save_calibration = path("frozen.safetensors");
  load(again);
  again.overwrite = true;
  load(again);
  EXPECT_TRUE(testing::read_text(path("frozen.safetensors")) == bytes);
  again.overwrite = false;
  again.seed = 4;
  EXPECT_TRUE(refused(again, ErrorCode::kInvalidArgument, "holds something else"));
  EXPECT_TRUE(testing::read_text(path("frozen.safetensors")) == bytes);
}

TEST_F(FrozenCalibration, OnlyMeetsTheRequestItWasMadeFor) {
  QuantizeOptions o = frozen();
  o.max_seq_length = 20;
  EXPECT_TRUE(refused(o, ErrorCode::kInvalidArgument, "rows have 40 ids, asked for are 20"));
  o.max_seq_length = 40;
  o.num_calibration_samples = 5;
  EXPECT_TRUE(refused(o, ErrorCode::kInvalidArgument, "6 rows, asked for are 5"));
  o.num_calibration_samples = 7;
  load(o);
  EXPECT_THAT(notes_.messages, ElementsAre(HasSubstr("fills 6 of 7 rows")));
  o.seed = 3;
  EXPECT_TRUE(refused(o, ErrorCode::kInvalidArgument, "seed 3"));
  o.seed = 0;
  o.calibration[0].weight = 1;
  EXPECT_TRUE(refused(o, ErrorCode::kInvalidArgument, "stands alone"));
  o.calibration = {path("frozen.safetensors"), bundled()};
  EXPECT_TRUE(refused(o, ErrorCode::kInvalidArgument, "stands alone"));
}

TEST_F(FrozenCalibration, AnotherTokenizerIsRefused) {
  const QuantizeOptions o = frozen();
  TokenizerIdentity other = tokenizer_identity(tiny(), testing::tiny_k3_dir());
  load_frozen_calibration(o, other);
  ++other.vocab_size;
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "another tokenizer",
                                  [&] { load_frozen_calibration(o, other); }));
  --other.vocab_size;
  other.tiktoken_sha256[0] = other.tiktoken_sha256[0] == 'a' ? 'b' : 'a';
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "another tokenizer",
                                  [&] { load_frozen_calibration(o, other); }));
}

TEST_F(FrozenCalibration, DamageIsFound) {
  const QuantizeOptions o = frozen();
  const std::string whole = testing::read_text(path("frozen.safetensors"));
  std::string bytes = whole;
  bytes.back() ^= 1;
  testing::write_text(path("frozen.safetensors"), bytes);
  EXPECT_TRUE(refused(o, ErrorCode::kCorrupt, "SHA-256"));
  testing::write_text(path("frozen.safetensors"), whole.substr(0, whole.size() - 4));
  EXPECT_TRUE(refused(o, ErrorCode::kCorrupt, "frozen.safetensors"));
  const std::tuple<const char*, const char*, const char*> edits[] = {
      {"trefoil-calibration", "trefoil-calibratioN", "no frozen calibration"},
      {"\"I32\"", "\"U32\"", "I32"},
      {"\\\"files\\\"", "\\\"filex\\\"", "what it says about its calibration"}};
  for (const auto& [from, to, message] : edits) {
    testing::write_text(path("frozen.safetensors"), whole);
    edit(from, to);
    EXPECT_TRUE(refused(o, ErrorCode::kCorrupt, message));
  }
}

// --- held-out texts ---

std::string ids_line(int32_t first, int count) {
  std::string ids;
  for (int i = 0; i < count; ++i) ids += fmt::format("{}{}", i > 0 ? ", " : "", first + i);
  return "{\"input_ids\": [" + ids + "]}\n";
}

TEST_F(Calibration, OverlapIsARunOfIdsThatBothHold) {
  const auto run = static_cast<int>(kSharedRun);
  const fs::path calibration = file("a.jsonl", ids_line(100, 500) + ids_line(1000, 500));
  const fs::path held_out = file("h.jsonl", ids_line(2000, 300)                                // not there
                                                + ids_line(100 + 500 - (run - 1), run - 1)     // one id too few to tell
                                                + ids_line(2000, 50) + ids_line(150, run + 6)  // all of it is there
                                                + ids_line(580, 2 * run)                       // 20 ids are, too few
                                                + ids_line(100 + 500 - run - 5, 2 * run)       // run + 5 ids are
                                                + ids_line(100, 12));                          // too short to judge
  QuantizeOptions o = options({calibration}, 10, 100);
  o.held_out = {held_out, file("none.jsonl", ids_line(2000, 300))};
  const CalibrationSet set = load(o);
  ASSERT_EQ(set.held_out->files.size(), 2u);
  const SharedPassages& found = set.held_out->files[0].passages;
  EXPECT_EQ(found.documents, 7);
  EXPECT_EQ(found.too_short, 1);
  EXPECT_EQ(found.overlapping, 3) << "a short document counts when all of it is there";
  EXPECT_EQ(found.contained, 2);
  EXPECT_EQ(found.shared_tokens, (run - 1) + (run + 6) + (run + 5));
  EXPECT_EQ(set.held_out->rows, 3) << "ids 150 to 219 in the first two rows, those up to 599 in the fifth";
  EXPECT_EQ(set.held_out->files[1].passages.overlapping, 0);
  EXPECT_THAT(notes_.messages, ElementsAre(HasSubstr("held-out h.jsonl: 3 of 7 documents")));
  o.refuse_overlap = true;
  EXPECT_TRUE(refused(o, ErrorCode::kInvalidArgument, "held-out h.jsonl"));
  o.held_out = {path("none.jsonl")};
  EXPECT_EQ(load(o).held_out->rows, 0);
}

TEST_F(Calibration, RowsTooShortToMeanAnythingAreNoted) {
  load(options({bundled()}, 4, 16));
  EXPECT_THAT(notes_.messages, IsEmpty());
  load(options({bundled()}, 4, 15));
  EXPECT_THAT(notes_.messages, ElementsAre(HasSubstr("rows of 15 tokens (--max-seq-length)")));
}

TEST_F(Calibration, OverlapIsFoundInAFrozenSetToo) {
  QuantizeOptions o = options({bundled()}, 20, 128);
  o.save_calibration = path("frozen.safetensors");
  load(o);
  QuantizeOptions again = options({path("frozen.safetensors")}, 20, 128);
  again.held_out = {bundled()};
  const CalibrationSet set = load(again);
  EXPECT_GT(set.held_out->files[0].passages.contained, 0);
  EXPECT_EQ(set.held_out->rows, 20);
}

}  // namespace
}  // namespace trefoil
