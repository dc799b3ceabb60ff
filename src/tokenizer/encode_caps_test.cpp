#include "tokenizer/encode_caps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "tokenizer/utf8.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

EncodeCaps caps(int64_t max_slice, int64_t max_run) {
  return {max_slice, max_run};
}

TEST(EncodeCaps, CutRunsOfOneKind) {
  EXPECT_THAT(cap_cuts("", caps(10, 3)), IsEmpty());
  EXPECT_THAT(cap_cuts("abc", caps(10, 3)), IsEmpty());
  EXPECT_THAT(cap_cuts("abcd", caps(10, 3)), ElementsAre(3));
  EXPECT_THAT(cap_cuts("abcdefg", caps(10, 3)), ElementsAre(3, 6));
  EXPECT_THAT(cap_cuts("ab   cde f", caps(10, 3)), IsEmpty());
  EXPECT_THAT(cap_cuts("ab    cdef", caps(10, 3)), ElementsAre(5, 9));
  EXPECT_THAT(cap_cuts("    a", caps(10, 3)), ElementsAre(3));
}

TEST(EncodeCaps, CountCodePoints) {
  EXPECT_THAT(cap_cuts("你好世界", caps(10, 3)), ElementsAre(9));
  EXPECT_THAT(cap_cuts("你好世界", caps(2, 3)), ElementsAre(6));
  EXPECT_THAT(cap_cuts("\u3000\u00A0\u2003 ", caps(10, 3)), ElementsAre(8));
}

TEST(EncodeCaps, SlicesStartTheRunAnew) {
  EXPECT_THAT(cap_cuts("abcdefghij", caps(5, 3)), ElementsAre(3, 5, 8));
  EXPECT_THAT(cap_cuts("abcdef", caps(3, 3)), ElementsAre(3));
}

TEST(EncodeCaps, SpaceIsWhatPythonCallsSpace) {
  // U+001C to U+001F are space to str.isspace() though not White_Space; U+200B is neither.
  EXPECT_THAT(cap_cuts("a\x1C\x1D\x1E\x1F"
                       "b",
                       caps(10, 2)),
              ElementsAre(3));
  EXPECT_THAT(cap_cuts("a\u200B\u200B", caps(10, 2)), ElementsAre(4));
}

TEST(EncodeCaps, RealCaps) {
  EXPECT_THAT(cap_cuts(std::string(60001, 'x'), EncodeCaps()), ElementsAre(25000, 50000));
  std::string words;
  for (int i = 0; i < 150000; ++i) words += "ab ";
  EXPECT_THAT(cap_cuts(words, EncodeCaps()), ElementsAre(400000));
}

// The reference's loop, on code points: slices of max_slice, each cut where a run grows over max_run.
std::vector<size_t> cuts_by_definition(const std::u32string& text, int64_t max_slice, int64_t max_run) {
  std::vector<size_t> cuts;
  const auto is_space = [](char32_t c) { return c == ' ' || c == '\n' || c == 0x3000; };
  for (size_t slice = 0; slice < text.size(); slice += static_cast<size_t>(max_slice)) {
    if (slice > 0) cuts.push_back(slice);
    const size_t end = std::min(text.size(), slice + static_cast<size_t>(max_slice));
    int64_t length = 0;
    bool space = is_space(text[slice]);
    for (size_t i = slice; i < end; ++i) {
      if (is_space(text[i]) != space) {
        length = 1;
        space = !space;
      } else if (++length > max_run) {
        cuts.push_back(i);
        length = 1;
      }
    }
  }
  return cuts;
}

TEST(EncodeCaps, EqualTheReferencesLoop) {
  std::mt19937_64 rng(3);
  for (int round = 0; round < 3000; ++round) {
    std::u32string code_points;
    std::string text;
    std::vector<size_t> offsets;
    for (uint64_t i = 0, n = rng() % 40; i < n; ++i) {
      const size_t kind = rng() % 4 == 0 ? rng() % 4 : (round % 2 == 0 ? 0 : 2);
      offsets.push_back(text.size());
      code_points.push_back(U"a你 \u3000"[kind]);
      text += std::array<const char*, 4>{"a", "你", " ", "\u3000"}[kind];
    }
    const auto max_slice = static_cast<int64_t>(1 + rng() % 12), max_run = static_cast<int64_t>(1 + rng() % 6);
    std::vector<size_t> expected;
    for (const size_t i : cuts_by_definition(code_points, max_slice, max_run)) expected.push_back(offsets[i]);
    ASSERT_EQ(cap_cuts(text, caps(max_slice, max_run)), expected)
        << '"' << text << "\" " << max_slice << ' ' << max_run;
  }
}

}  // namespace
}  // namespace trefoil
