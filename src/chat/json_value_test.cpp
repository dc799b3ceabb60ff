#include "chat/json_value.h"

#include <gmock/gmock.h>

#include "support/expect_error.h"

namespace trefoil {
namespace {

std::string rewritten(std::string_view json, const JsonStyle& style = kDefaultJson) {
  return write_json(parse_json(json, RepeatedKeys::kLastWins), style);
}

// As Python 3.11's json.dumps(json.loads(x), ensure_ascii=False) writes them.
TEST(JsonValue, NumbersAreWrittenAsPythonWritesThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"1.0", "1.0"},
      {"1e5", "100000.0"},
      {"1e16", "1e+16"},
      {"1e15", "1000000000000000.0"},
      {"1e-4", "0.0001"},
      {"1e-5", "1e-05"},
      {"-1.25e-7", "-1.25e-07"},
      {"123456.789", "123456.789"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"5e-324", "5e-324"},
      {"0.1", "0.1"},
      {"0.30000000000000004", "0.30000000000000004"},
      {"-0.0", "-0.0"},
      {"0", "0"},
      {"-0", "0"},
      {"18446744073709551616", "18446744073709551616"},
      {"-9223372036854775809", "-9223372036854775809"},
      {"12345678901234567890123456789", "12345678901234567890123456789"}};
  for (const auto& [json, python] : cases) EXPECT_EQ(rewritten(json), python) << json;
}

TEST(JsonValue, StringsEscapeOnlyWhatPythonEscapes) {
  EXPECT_EQ(rewritten(R"("\u00e9\/\u2028\u007f\"\\\b\f\n\r\t\u0001\u001f\ud83d\ude00")"),
            "\"é/\u2028\x7f\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f😀\"");
}

TEST(JsonValue, SortsKeysByCodePointAtEveryLevel) {
  EXPECT_EQ(rewritten(R"({"b": {"é": 1, "z": 2, "😀": 3, "": 4}, "a": [ {} , [] ], "B": null})", kCompactSortedJson),
            R"({"B":null,"a":[{},[]],"b":{"":4,"z":2,"é":1,"😀":3}})");
  EXPECT_EQ(rewritten(R"({"b":1,"a":[1,2]})"), R"({"b": 1, "a": [1, 2]})");
}

TEST(JsonValue, OfRepeatedKeysTheLastWinsAtTheFirstPlace) {
  EXPECT_EQ(rewritten(R"({"a": 1, "b": 2, "a": 3, "c": 4, "b": 5, "d": 6})"), R"({"a": 3, "b": 5, "c": 4, "d": 6})");
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "the key \"a\\n\" occurs twice",
                                  [] { parse_json(R"({"x": {"a\n": 1, "a\n": 2}})", RepeatedKeys::kRefuse); }));
}

TEST(JsonValue, RefusesWhatIsNotJsonOrTooMuch) {
  for (const char* json :
       {"", "{", "[1,]", "{'a': 1}", "nul", "01", "1 2", "\"\xff\"", "\"\\ud800\"", "NaN", "\"a\nb\""}) {
    EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "not JSON at byte",
                                    [&] { parse_json(json, RepeatedKeys::kLastWins); }));
  }
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "outside the range of double",
                                  [] { parse_json("1e400", RepeatedKeys::kLastWins); }));
  const std::string deep(kMaxJsonDepth + 1, '[');
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "levels deep",
                                  [&] { parse_json(deep, RepeatedKeys::kLastWins); }));
  std::string many = "[0";
  for (int i = 0; i < kMaxJsonValues; ++i) many += ",0";
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "more than 1000000 JSON values",
                                  [&] { parse_json(many + "]", RepeatedKeys::kLastWins); }));
}

}  // namespace
}  // namespace trefoil
