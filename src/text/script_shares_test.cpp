#include "text/script_shares.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tokenizer/unicode_script.h"

namespace trefoil {
namespace {

std::string script(char32_t code_point) {
  const int number = script_of(code_point);
  return number < 0 ? "" : std::string(script_names()[static_cast<size_t>(number)]);
}

// From Scripts-16.0.0.txt, edges of ranges among them.
TEST(UnicodeScript, IsTheScriptProperty) {
  const std::pair<char32_t, const char*> cases[] = {{U'A', "Latin"},
                                                    {U'@', ""},
                                                    {U'[', ""},
                                                    {U'z', "Latin"},
                                                    {U'{', ""},
                                                    {0x00AA, "Latin"},
                                                    {0x00D7, ""},
                                                    {0x00F8, "Latin"},
                                                    {0x0301, ""},
                                                    {0x0370, "Greek"},
                                                    {0x0373, "Greek"},
                                                    {0x0374, ""},
                                                    {0x0401, "Cyrillic"},
                                                    {0x05D0, "Hebrew"},
                                                    {0x0627, "Arabic"},
                                                    {0x060C, ""},
                                                    {0x0905, "Devanagari"},
                                                    {0x0E01, "Thai"},
                                                    {0x1100, "Hangul"},
                                                    {0x3001, ""},
                                                    {0x3005, "Han"},
                                                    {0x3042, "Hiragana"},
                                                    {0x30A2, "Katakana"},
                                                    {0x30FC, ""},
                                                    {0x4E2D, "Han"},
                                                    {0xAC00, "Hangul"},
                                                    {0x20000, "Han"},
                                                    {0x1F600, ""},
                                                    {0xE000, ""},
                                                    {0x10FFFF, ""},
                                                    {0, ""}};
  for (const auto& [code_point, name] : cases) EXPECT_EQ(script(code_point), name) << static_cast<uint32_t>(code_point);
}

TEST(UnicodeScript, NamesAreSortedAndNotRepeated) {
  const auto names = script_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(ScriptCounter, SharesAreOfCharactersWithAScript) {
  ScriptCounter counter;
  counter.add("ab, 12! «c»");
  counter.add("да");
  counter.add("中文字。");
  EXPECT_EQ(counter.characters(), 8);
  const auto shares = counter.shares();
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_EQ(shares[0].script, "Han");
  EXPECT_DOUBLE_EQ(shares[0].share, 3.0 / 8);
  EXPECT_EQ(shares[1].script, "Latin");
  EXPECT_EQ(shares[2].script, "Cyrillic");
  EXPECT_DOUBLE_EQ(shares[2].share, 2.0 / 8);
}

TEST(ScriptCounter, NothingHasNoShares) {
  ScriptCounter counter;
  counter.add("123 ...");
  EXPECT_TRUE(counter.shares().empty());
}

}  // namespace
}  // namespace trefoil
