#include "cli/progress_line.h"

#include <gmock/gmock.h>

#include "cli/terminal_text.h"

namespace trefoil::cli {
namespace {

using ::testing::HasSubstr;

ProgressState expert_state() {
  ProgressState state;
  state.stage = "layer 3 of 0..92: experts";
  state.done = 64;
  state.total = 896;
  state.rates = ProgressRates{512.4, 210.2, 13ull << 30, 64ull << 30, 0.0321, 7800};
  return state;
}

TEST(ProgressLine, SaysEverythingWhereThereIsRoom) {
  EXPECT_EQ(
      progress_line(expert_state(), 200),
      "layer 3 of 0..92: experts 64/896, 512 tokens/s, 210 GFLOP/s, 13.0 GiB now of 64.0 GiB, 3.2 %, 2 h 10 min left");
}

TEST(ProgressLine, LeavesOutTheLeastNeededFirst) {
  EXPECT_EQ(progress_line(expert_state(), 84),
            "layer 3 of 0..92: experts 64/896, 13.0 GiB now of 64.0 GiB, 3.2 %, 2 h 10 min left");
  EXPECT_EQ(progress_line(expert_state(), 51), "layer 3 of 0..92: experts 64/896, 2 h 10 min left");
}

TEST(ProgressLine, FitsEveryWidth) {
  ProgressState state = expert_state();
  state.stage = "layer 3: \xC3\xA9tape";
  for (size_t width = 0; width < 150; ++width) {
    const std::string line = progress_line(state, width);
    EXPECT_LE(line.size(), width);
    EXPECT_TRUE(line.empty() || line.back() != '\xC3') << "half a character at " << width;
  }
}

TEST(ProgressLine, UnknownNumbersAreNotShown) {
  ProgressState state = expert_state();
  state.rates = ProgressRates{};
  EXPECT_EQ(progress_line(state, 200), "layer 3 of 0..92: experts 64/896");
  EXPECT_EQ(progress_line({"reading", 0, 0, std::nullopt, 0}, 200), "reading");
  EXPECT_EQ(progress_line({"evaluate", 2, 8, std::nullopt, 42}, 200), "evaluate 2/8, 42 s left");
}

TEST(ProgressLine, NeitherStageNorNoteCanMoveTheCursor) {
  EXPECT_EQ(progress_line({"a\x1b[2Jb\n", 0, 0, std::nullopt, 0}, 200), "a\\x1b[2Jb\\x0a");
  EXPECT_EQ(note_line("a\x1b[2Jb\n\x7F"), "note: a\\x1b[2Jb\\x0a\\x7f");
}

TEST(TerminalText, KeepsCharactersAndShowsControls) {
  EXPECT_EQ(terminal_text("\xC3\xA9tape \xC2\xA9"), "\xC3\xA9tape \xC2\xA9");
  EXPECT_EQ(terminal_text("\xC2\x9B"
                          "2J"),
            "\\xc2\\x9b2J");
  EXPECT_EQ(terminal_text("\xC2"), "\xC2");
}

TEST(ProgressJson, HoldsTheSameNumbers) {
  EXPECT_EQ(progress_json(expert_state()),
            R"({"event":"progress","stage":"layer 3 of 0..92: experts","done":64,"total":896,"tokens_per_s":512.4,)"
            R"("gflop_per_s":210.2,"resident_bytes":13958643712,"budget_bytes":68719476736,"done_fraction":0.0321,)"
            R"("left_s":7800})");
  ProgressState state = expert_state();
  state.rates = ProgressRates{};
  EXPECT_THAT(progress_json(state), HasSubstr(R"("tokens_per_s":null)"));
  EXPECT_EQ(progress_json({"a \"b\"", 2, 8, std::nullopt, 3}),
            R"({"event":"progress","stage":"a \"b\"","done":2,"total":8})");
  EXPECT_EQ(note_json("x\ny"), R"({"event":"note","message":"x\u000ay"})");
}

}  // namespace
}  // namespace trefoil::cli
