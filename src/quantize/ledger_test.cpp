#include "quantize/ledger.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <thread>

#include "base/error.h"
#include "quantize/crew.h"
#include "quantize/row_file.h"
#include "quantize/unit_payload.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using testing::TempDir;
using testing::write_text;

TEST(Ledger, KeepsWhatAUnitSaid) {
  TempDir temp;
  Ledger ledger(temp.path() / "ledger", "job");
  EXPECT_FALSE(ledger.is_done("L001.experts.00000"));
  EXPECT_FALSE(ledger.find("L001.experts.00000"));
  ledger.commit({"L001.experts.00000", 1.5, {{"a.safetensors", 8, 16, "ab"}}, R"({"x":0.1})", "host, process 1"});
  Ledger later(temp.path() / "ledger", "job");
  EXPECT_TRUE(later.is_done("L001.experts.00000"));
  const auto record = later.find("L001.experts.00000");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->seconds, 1.5);
  EXPECT_EQ(record->ranges.at(0).offset, 8u);
  EXPECT_EQ(record->payload, R"({"x":0.1})");
  EXPECT_THAT(later.units(), ElementsAre("L001.experts.00000"));
  later.forget("L001.experts.00000");
  EXPECT_FALSE(later.is_done("L001.experts.00000"));
}

TEST(Ledger, RecordsOfAnotherJobAndDamagedOnesDoNotCount) {
  TempDir temp;
  Ledger(temp.path(), "one").commit({"u", 0, {}, "", ""});
  EXPECT_FALSE(Ledger(temp.path(), "two").find("u"));
  write_text(temp.path() / "u.json", R"({"job": "one", "unit": "u")");
  EXPECT_FALSE(Ledger(temp.path(), "one").find("u"));
  write_text(temp.path() / "u.json",
             R"({"job": "one", "unit": "v", "by": "", "seconds": 0, "ranges": [], "payload": null})");
  EXPECT_FALSE(Ledger(temp.path(), "one").find("u")) << "a record under another unit's name";
}

TEST(UnitSummary, IsReadFromTheFrontOfARecord) {
  TempDir temp;
  Ledger ledger(temp.path(), std::string(64, 'a'));
  std::vector<WrittenRange> ranges(1000, {"model-00001-of-000096.safetensors", 1, 2, std::string(64, 'b')});
  ledger.commit({"L001.experts.00000", 1.5, ranges, "", "a \"host\", process 7"});
  const auto summary = read_unit_summary(ledger.record_of("L001.experts.00000"));
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->unit, "L001.experts.00000");
  EXPECT_EQ(summary->by, "a \"host\", process 7");
  EXPECT_EQ(summary->seconds, 1.5);
  EXPECT_LT(std::chrono::abs(std::chrono::system_clock::now() - summary->finished), std::chrono::hours(1));
  fs::rename(temp.path() / "L001.experts.00000.json", temp.path() / "L001.experts.00064.json");
  EXPECT_FALSE(read_unit_summary(temp.path() / "L001.experts.00064.json")) << "a record under another unit's name";
  EXPECT_FALSE(read_unit_summary(temp.path() / "none.json"));
  write_text(temp.path() / "cut.json", R"({"job":"x","unit":"cut")");
  EXPECT_FALSE(read_unit_summary(temp.path() / "cut.json"));
}

TEST(WrittenRange, IsIntactUntilAByteChanges) {
  TempDir temp;
  RowFile file(temp.path(), "rows", 4, 3, RowAccess::kWrite);
  const WrittenRange range = file.write(1, as_bytes_of("abcdef"));
  EXPECT_EQ(range.offset, 3u);
  EXPECT_TRUE(range_is_intact(temp.path(), range));
  file.write(2, as_bytes_of("dex"));
  EXPECT_FALSE(range_is_intact(temp.path(), range));
  fs::resize_file(temp.path() / "rows", 5);
  EXPECT_FALSE(range_is_intact(temp.path(), range));
  fs::remove(temp.path() / "rows");
  EXPECT_FALSE(range_is_intact(temp.path(), range));
}

TEST(ActivationFile, Bf16RowsComeBackAndNothingIsRounded) {
  TempDir temp;
  ActivationFile file(temp.path(), "rows", 3, 2, ActivationFile::Element::kBf16, RowAccess::kWrite);
  file.write(0, std::vector<float>{1, -2, 0.5f, 3, 256, -0.0f});
  EXPECT_EQ(fs::file_size(temp.path() / "rows"), 12u);
  std::vector<float> rows(6);
  file.gather(std::vector<int64_t>{2, 0, 1}, rows);
  EXPECT_THAT(rows, ElementsAre(256, -0.0f, 1, -2, 0.5f, 3));
  EXPECT_THROW(ActivationFile(temp.path(), "rows", 4, 2, ActivationFile::Element::kBf16, RowAccess::kRead), Error);
  EXPECT_THROW(ActivationFile(temp.path(), "gone", 3, 2, ActivationFile::Element::kBf16, RowAccess::kRead), Error);
  EXPECT_FALSE(fs::exists(temp.path() / "gone")) << "what is read is never made";
}

TEST(UnitPayload, ComesBackToTheBit) {
  MatrixRecord matrix;
  matrix.expert = 7;
  matrix.part = ExpertPart::kW3;
  matrix.loss = 0.1 + 0.2;
  matrix.n_eff = 1e-300;
  matrix.fallback = "identity: \"why\"";
  ExpertTimes times;
  times.gate_up.add(Phase::kMoments, {0.1, 3e9});
  times.down.add(Phase::kEncode, {0.3, 0});
  const SolvedExperts back = parse_payload(to_payload({{3, 0}, {matrix}, times}));
  EXPECT_EQ(back.times.gate_up[Phase::kMoments].seconds, 0.1);
  EXPECT_EQ(back.times.gate_up[Phase::kMoments].flops, 3e9);
  EXPECT_EQ(back.times.down[Phase::kEncode].seconds, 0.3);
  EXPECT_EQ(back.times.down[Phase::kMoments].seconds, 0);
  EXPECT_THAT(back.tokens_per_expert, ElementsAre(3, 0));
  EXPECT_EQ(back.matrices.at(0).loss, matrix.loss);
  EXPECT_EQ(back.matrices.at(0).n_eff, matrix.n_eff);
  EXPECT_EQ(back.matrices.at(0).part, ExpertPart::kW3);
  EXPECT_EQ(back.matrices.at(0).fallback, matrix.fallback);
  EXPECT_THROW(parse_payload("{}"), Error);
}

TEST(Crew, DoesEveryUnitOnceAndNoneTwice) {
  TempDir temp;
  Ledger ledger(temp.path(), "job");
  ProgressSink silent;
  int runs = 0;
  const std::vector<Unit> units = {{"a", [&] { return ++runs, UnitRecord(); }},
                                   {"b", [&] { return ++runs, UnitRecord(); }}};
  Crew crew(ledger, {}, silent);
  crew.run("step", units);
  crew.run("step", units);
  EXPECT_EQ(runs, 2);
}

TEST(Crew, SeveralShareTheUnitsOfAStep) {
  TempDir temp;
  std::atomic<int> runs{0};
  const auto work = [&] {
    Ledger ledger(temp.path(), "job");
    ProgressSink silent;
    Crew::Options shared;
    shared.is_shared = true;
    Crew crew(ledger, shared, silent);
    std::vector<Unit> units;
    for (int i = 0; i < 20; ++i) units.push_back({fmt::format("u{}", i), [&] { return ++runs, UnitRecord(); }});
    crew.run("step", units);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(ledger.is_done(fmt::format("u{}", i)));
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(runs, 20);
}

TEST(Crew, RanksBeginAtTheirOwnShareAndHelpWithTheRest) {
  for (const auto& [rank, order] : std::map<int, std::string>{{0, "abcdef"}, {1, "cdefab"}, {2, "efabcd"}}) {
    TempDir temp;
    Ledger ledger(temp.path(), "job");
    ProgressSink silent;
    std::string done;
    std::vector<Unit> units;
    for (const char name : std::string("abcdef"))
      units.push_back({std::string(1, name), [&done, name] { return done += name, UnitRecord(); }});
    Crew crew(ledger, {.is_shared = true, .place = {rank, 3}}, silent);
    crew.run("step", units);
    EXPECT_EQ(done, order) << "rank " << rank;
  }
}

TEST(Crew, UnitsSideBySideOverlap) {
  TempDir temp;
  Ledger ledger(temp.path(), "job");
  ProgressSink silent;
  ThreadPool pool(2);
  std::atomic<int> begun{0};
  const auto wait_for_both = [&begun] {
    ++begun;
    for (int i = 0; i < 2000 && begun < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_GE(begun, 2) << "one ran alone";
    return UnitRecord();
  };
  std::vector<Unit> units = {{"a", wait_for_both}, {"b", wait_for_both}};
  std::atomic<int> done{0};
  for (int i = 0; i < 20; ++i) units.push_back({"n" + std::to_string(i), [&done] { return ++done, UnitRecord(); }});
  for (const bool is_shared : {false, true}) {
    Crew crew(ledger, {.is_shared = is_shared}, silent);
    crew.run_side_by_side("step", units, pool, 2);
    EXPECT_EQ(done, 20) << "each once, and none again";
  }
}

TEST(Crew, AUnitThatFailsEndsTheOthersBetweenUnits) {
  TempDir temp;
  Ledger ledger(temp.path(), "job");
  ProgressSink silent;
  ThreadPool pool(2);
  std::atomic<bool> has_failed{false};
  std::vector<Unit> units = {{"bad", [&has_failed]() -> UnitRecord {
                                has_failed = true;
                                throw Error(ErrorCode::kIo, "the disk is gone");
                              }}};
  for (int i = 0; i < 100; ++i) {
    units.push_back({"n" + std::to_string(i), [&has_failed] {
                       while (!has_failed) std::this_thread::yield();
                       std::this_thread::sleep_for(std::chrono::milliseconds(10));
                       return UnitRecord();
                     }});
  }
  Crew crew(ledger, {}, silent);
  EXPECT_THROW(crew.run_side_by_side("step", units, pool, 2), Error);
  EXPECT_LT(ledger.units().size(), 5u);
  EXPECT_FALSE(ledger.is_done("bad"));
}

TEST(Crew, ADeadRankIsNamed) {
  class Notes : public ProgressSink {
   public:
    void note(std::string_view message) override { text += message; }
    std::string text;
  };
  TempDir temp;
  Ledger ledger(temp.path(), "job");
  Notes notes;
  testing::write_text(temp.path() / "a.claim", this_process({2, 3}));  // nobody holds its lock
  Crew crew(ledger, {.is_shared = true, .place = {0, 3}}, notes);
  crew.run("step", {{"a", [] { return UnitRecord(); }}});
  EXPECT_THAT(notes.text, ::testing::HasSubstr("rank 2 of 3 is gone without finishing it"));
}

TEST(Crew, StopsBetweenUnits) {
  TempDir temp;
  Ledger ledger(temp.path(), "job");
  ProgressSink silent;
  std::atomic<bool> stop{false};
  Crew::Options stopping;
  stopping.stop = &stop;
  Crew crew(ledger, stopping, silent);
  const std::vector<Unit> units = {{"a", [&] { return stop = true, UnitRecord(); }},
                                   {"b", [] { return UnitRecord(); }}};
  EXPECT_THROW(crew.run("step", units), Error);
  EXPECT_TRUE(ledger.is_done("a"));
  EXPECT_FALSE(ledger.is_done("b"));
}

}  // namespace
}  // namespace trefoil
