#include "model/stop_strings.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trefoil {
namespace {

struct Outcome {
  std::string shown;
  std::string matched;
};

// Feeds `text` in pieces of `size` bytes.
Outcome feed(const std::vector<std::string>& stops, const std::string& text, size_t size) {
  StopStrings filter(stops);
  Outcome outcome;
  for (size_t begin = 0; begin < text.size(); begin += size) {
    outcome.shown += filter.push(std::string_view(text).substr(begin, size));
  }
  outcome.shown += filter.flush();
  outcome.matched = filter.matched().value_or("");
  return outcome;
}

TEST(StopStrings, NothingOfAStopStringIsShownHoweverTheTextIsCut) {
  for (size_t size = 1; size < 20; ++size) {
    const Outcome outcome = feed({"<end>"}, "text <en and <end> more", size);
    EXPECT_EQ(outcome.shown, "text <en and ") << size;
    EXPECT_EQ(outcome.matched, "<end>") << size;
  }
}

TEST(StopStrings, ABeginningIsHeldUntilItTurnsOutOrdinary) {
  StopStrings filter({"aab"});
  EXPECT_EQ(filter.push("x"), "x");
  EXPECT_EQ(filter.push("aa"), "");
  EXPECT_EQ(filter.push("a"), "a");  // "aa" may still begin it
  EXPECT_EQ(filter.push("c"), "aac");
  EXPECT_EQ(filter.push("a"), "");
  EXPECT_EQ(filter.flush(), "a");
  EXPECT_FALSE(filter.matched());
}

TEST(StopStrings, TheFirstToEndWinsAndOfThoseTheLongest) {
  for (size_t size = 1; size < 8; ++size) {
    EXPECT_EQ(feed({"bcd", "c"}, "abcd", size).matched, "c");
    EXPECT_EQ(feed({"bcd", "c"}, "abcd", size).shown, "ab");
    EXPECT_EQ(feed({"d", "bcd"}, "abcd", size).matched, "bcd");
    EXPECT_EQ(feed({"d", "bcd"}, "abcd", size).shown, "a");
  }
}

TEST(StopStrings, NothingComesAfterAMatch) {
  StopStrings filter({"."});
  EXPECT_EQ(filter.push("a.b"), "a");
  EXPECT_EQ(filter.push("c"), "");
  EXPECT_EQ(filter.flush(), "");
}

TEST(StopStrings, NoStopStringsPassEverything) {
  EXPECT_EQ(feed({}, "anything", 3).shown, "anything");
}

TEST(StopStrings, AnEmptyOneIsRefused) {
  EXPECT_THROW(StopStrings({"a", ""}), Error);
}

}  // namespace
}  // namespace trefoil
