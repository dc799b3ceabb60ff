#include "tokenizer/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/test_support.h"
#include "tokenizer/utf8.h"

namespace trefoil {
namespace {

std::vector<std::string> split(std::string_view text) {
  Splitter splitter;
  splitter.reset(text);
  std::vector<std::string> pieces;
  for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next()) pieces.emplace_back(piece);
  return pieces;
}

// PCRE2 as an independent judge. Its subject has one byte per code point, which stands for the class or, where the
// pattern asks for letters, for the letter.
const std::map<char, std::string> kStandsFor = {
    {'.', "!"},  {' ', " "},      {'\n', "\n"}, {'\r', "\r"}, {'b', "\u3000"}, {'U', "Ω"},  {'x', "ж"},
    {'A', "あ"}, {'M', "\u0301"}, {'1', "٣"},   {'h', "你"},  {'i', "〇"},     {'j', "⺀"}, {'\'', "'"},
    {'s', "s"},  {'S', "S"},      {'t', "t"},   {'r', "r"},   {'e', "e"},      {'E', "E"},  {'v', "v"},
    {'m', "m"},  {'l', "l"},      {'L', "L"},   {'d', "d"},   {'f', "\u017F"}};

#define UPPER_RUN "[USELAM]"
#define LOWER_RUN "[xstrevmldfAM]"
#define NOT_LINE_LETTER_NUMBER "[. b'Mj]"
#define CONTRACTION "(?:'[sSft]|'r[eE]|'v[eE]|'m|'[lL][lL]|'d)?"
constexpr const char* kPattern =
    "[hij]+"
    "|" NOT_LINE_LETTER_NUMBER "?" UPPER_RUN "*" LOWER_RUN "+" CONTRACTION "|" NOT_LINE_LETTER_NUMBER "?" UPPER_RUN
    "+" LOWER_RUN "*" CONTRACTION
    "|[1i]{1,3}"
    "| ?[.'Mj]+[\\r\\n]*"
    "|[ \\r\\nb]*[\\r\\n]+"
    "|[ \\r\\nb]+(?![^ \\r\\nb])"
    "|[ \\r\\nb]+";

class Judge {
 public:
  Judge() {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED, 0, &error, &at, nullptr);
    EXPECT_NE(code_, nullptr) << "pattern error at " << at;
    EXPECT_EQ(pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE), 0);
    match_ = pcre2_match_data_create(1, nullptr);
  }
  ~Judge() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  // Lengths of the pieces.
  std::vector<size_t> split(const std::string& subject) {
    std::vector<size_t> lengths;
    for (size_t at = 0; at < subject.size();) {
      const int found =
          pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), at, 0, match_, nullptr);
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match_);
      if (found != 1 || range[0] != at || range[1] == at) ADD_FAILURE() << "no match in '" << subject << "' at " << at;
      lengths.push_back(range[1] - at);
      at = range[1];
    }
    return lengths;
  }

 private:
  pcre2_code* code_;
  pcre2_match_data* match_;
};

// Every string over `alphabet` of up to `longest` characters.
void expect_same_split(const std::string& alphabet, size_t longest) {
  Judge judge;
  Splitter splitter;
  for (size_t length = 1; length <= longest; ++length) {
    std::vector<size_t> digits(length, 0);
    for (bool more = true; more;) {
      std::string subject, text;
      for (const size_t digit : digits) subject.push_back(alphabet[digit]);
      for (const char c : subject) text += kStandsFor.at(c);
      size_t at = 0;
      splitter.reset(text);
      for (const size_t piece_length : judge.split(subject)) {
        std::string expected;
        for (size_t i = 0; i < piece_length; ++i) expected += kStandsFor.at(subject[at + i]);
        ASSERT_EQ(splitter.next(), expected) << "in '" << subject << "' at " << at;
        at += piece_length;
      }
      ASSERT_TRUE(splitter.next().empty());
      more = false;
      for (size_t i = 0; i < length && !more; ++i) {
        more = ++digits[i] < alphabet.size();
        if (!more) digits[i] = 0;
      }
    }
  }
}

TEST(Split, EqualsPcre2OnEveryShortStringOfClasses) {
  expect_same_split(".b \nUxAM1hij", 5);
}
TEST(Split, EqualsPcre2OnEveryLongerStringOfBacktrackingClasses) {
  expect_same_split(" .UxAM", 7);
}
TEST(Split, EqualsPcre2OnEveryLongerStringOfBlanks) {
  expect_same_split(" \n\rb.x", 7);
}
TEST(Split, EqualsPcre2OnEveryShortStringWithContractions) {
  expect_same_split("'sSfrevlLUM ", 5);
}
TEST(Split, EqualsPcre2OnOtherContractions) {
  expect_same_split("'tmdeEAx1\n", 5);
}

TEST(Split, EqualsTiktokenOnRecordedTexts) {
  const nlohmann::json golden =
      nlohmann::json::parse(testing::read_text(testing::golden_dir() / "tokenizer-split.json"));
  ASSERT_GE(golden["cases"].size(), 3000u);
  for (const nlohmann::json& test : golden["cases"]) {
    const auto text = test[0].get<std::string>();
    EXPECT_EQ(split(text), test[1].get<std::vector<std::string>>()) << test[0].dump(-1, ' ', true);
  }
}

TEST(Split, LeavesTheLastBlankToTheNextWord) {
  EXPECT_EQ(split("a   b"), (std::vector<std::string>{"a", "  ", " b"}));
  EXPECT_EQ(split("a   "), (std::vector<std::string>{"a", "   "}));
  EXPECT_EQ(split("a \n  \n  b"), (std::vector<std::string>{"a", " \n  \n", " ", " b"}));
}

TEST(Split, HanIsTheScriptNotItsExtensions) {
  EXPECT_EQ(split("你、好"), (std::vector<std::string>{"你", "、", "好"}));
  EXPECT_EQ(split("漢字kanaかな"), (std::vector<std::string>{"漢字", "kanaかな"}));
}

TEST(Split, CaselessCharactersAreGivenBack) {
  EXPECT_EQ(split("ABあCD"), (std::vector<std::string>{"ABあ", "CD"}));
  EXPECT_EQ(split("\u0301ABC"), (std::vector<std::string>{"\u0301", "ABC"}));
  EXPECT_EQ(split("HTTPServer2x"), (std::vector<std::string>{"HTTPServer", "2", "x"}));
}

TEST(Split, LongRunsAreLinearAndWhole) {
  const size_t n = 400'000;
  for (const char* unit : {"A", "a", " ", "\n", "!", "\u0301", "你", "あ"}) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += unit;
    EXPECT_EQ(split(text).size(), 1u) << unit;
  }
  EXPECT_EQ(split(std::string(n, '1')).size(), (n + 2) / 3);
  // Alternating classes that make the reference backtrack at every step.
  std::string marks;
  for (size_t i = 0; i < n; ++i) marks += "\u0301A";
  EXPECT_EQ(split(marks).size(), 2u);
}

TEST(Split, EmptyTextHasNoPiece) {
  EXPECT_TRUE(split("").empty());
}

}  // namespace
}  // namespace trefoil
