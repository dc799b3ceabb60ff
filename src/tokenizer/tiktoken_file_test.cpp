#include "tokenizer/tiktoken_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tokenizer/special_tokens.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string byte_line(int byte) {
  return std::string{kAlphabet[byte >> 2], kAlphabet[(byte & 3) << 4]} + "== " + std::to_string(byte) + "\n";
}

std::string all_bytes() {
  std::string text;
  for (int i = 0; i < 256; ++i) text += byte_line(i);
  return text;
}

void expect_refused(const std::string& text, const std::string& message) {
  try {
    parse_tiktoken(text, "F");
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), HasSubstr(message));
    EXPECT_LT(std::string(error.what()).size(), 200u);
  }
}

TEST(TiktokenFile, TokensComeByRank) {
  const std::vector<std::string> tokens =
      parse_tiktoken("YWI= 256\n" + all_bytes() + "\n\r\nYWJj 258\r\nYWJjZA== 257", "F");
  ASSERT_EQ(tokens.size(), 259u);
  EXPECT_EQ(tokens[0], std::string(1, '\0'));
  EXPECT_EQ(tokens[255], "\xFF");
  EXPECT_EQ(tokens[256], "ab");
  EXPECT_EQ(tokens[257], "abcd");
  EXPECT_EQ(tokens[258], "abc");
}

TEST(TiktokenFile, RefusesLinesThatAreNotTokenAndRank) {
  const std::pair<const char*, const char*> cases[] = {
      {"YWI=", "F line 257: no rank"},
      {" 256", "F line 257: the token is empty"},
      {"YWI= ", "F line 257: the rank ''"},
      {"YWI= x", "the rank 'x'"},
      {"YWI= -1", "the rank '-1'"},
      {"YWI= +256", "the rank '+256'"},
      {"YWI= 256 ", "the rank '256 '"},
      {"YWI=  256", "the rank ' 256'"},
      {"YWI= 256.0", "the rank '256.0'"},
      {"YWI= 9223372036854775808", "the rank"},
      {"YWI 256", "not base64"},
      {"YWI* 256", "not base64"},
      {"YW=I 256", "not base64"},
      {"Y=== 256", "not base64"},
      {"==== 256", "not base64"},
      {"YWJ= 256", "not base64"},  // bits behind the last byte are not zero
      {"YWI=\t256", "F line 257: no rank"},
  };
  for (const auto& [line, message] : cases) expect_refused(all_bytes() + line, message);
  expect_refused(all_bytes() + std::string(3 << 20, 'A'), "F line 257: no rank");
  expect_refused(all_bytes() + "YWI= " + std::string(3 << 20, '9'), "F line 257: the rank");
  expect_refused(all_bytes() + std::string("YWI= 256\0", 9), "the rank");
}

TEST(TiktokenFile, RefusesRanksThatAreNotZeroToNMinusOne) {
  expect_refused(all_bytes() + "YWI= 255\n", "F line 257: rank 255 was already given in line 256");
  expect_refused(all_bytes() + "YWI= 257\n", "F line 257: rank 257, but no line gives rank 256");
  expect_refused(all_bytes() + "YWI= 9223372036854775807\n", "but no line gives rank 256");
}

TEST(TiktokenFile, RefusesTokensThatOccurTwice) {
  expect_refused(all_bytes() + "YWI= 256\nYWI= 257\n", "F line 258: the same token as in line 257");
}

TEST(TiktokenFile, RefusesAVocabularyThatCannotEncodeEveryByte) {
  std::string text;
  for (int i = 0; i < 255; ++i) text += byte_line(i);
  expect_refused(text, "no token for the single byte 0xff");
  expect_refused("", "holds no token");
  expect_refused("\n\n", "holds no token");
}

TEST(TiktokenFile, EveryTruncationIsRefusedOrShorter) {
  const std::string whole = all_bytes() + "YWI= 256\nYWJj 257";
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string text = whole.substr(0, size);
    try {
      EXPECT_LT(parse_tiktoken(text, "F").size(), 258u) << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    }
  }
}

// --- tokenizer_config.json ---

void expect_config_refused(const std::string& config, const std::string& message) {
  try {
    SpecialTokenSet::parse(config, "C", 3840);
    ADD_FAILURE() << "accepted: " << config.substr(0, 100);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), HasSubstr("C: "));
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

std::string decoder(const std::string& entries) {
  return "{\"added_tokens_decoder\": {" + entries + "}}";
}

TEST(SpecialTokenSet, NamesWhatTheConfigNamesAndReservesTheRest) {
  const SpecialTokenSet set =
      SpecialTokenSet::parse(decoder(R"("3841": {"content": "[X]", "special": true})"), "C", 3840);
  EXPECT_EQ(set.token_name(3840), "<|reserved_token_3840|>");
  EXPECT_EQ(set.token_name(3841), "[X]");
  EXPECT_EQ(set.find("[X]"), 3841);
  EXPECT_EQ(set.find("<|reserved_token_4095|>"), 4095);
  EXPECT_FALSE(set.find("<|reserved_token_3841|>").has_value());
  EXPECT_EQ(SpecialTokenSet::parse("{}", "C", 5).find("<|reserved_token_260|>"), 260);
}

TEST(SpecialTokenSet, RefusesConfigsThatContradictTheRanks) {
  expect_config_refused("", "not JSON");
  expect_config_refused("{", "not JSON");
  expect_config_refused("[]", "not a JSON object");
  expect_config_refused("{\"added_tokens_decoder\": []}", "added_tokens_decoder is not an object");
  expect_config_refused("{\"added_tokens_decoder\": {}, \"added_tokens_decoder\": {}}", "occurs twice");
  expect_config_refused(decoder(R"("x": {"content": "a"})"), "\"x\" is not a token id");
  expect_config_refused(decoder(R"("03841": {"content": "a"})"), "is not a token id");
  expect_config_refused(decoder(R"("99999999999": {"content": "a"})"), "is not a token id");
  expect_config_refused(decoder(R"("3839": {"content": "a"})"), "id 3839 is outside the special tokens 3840 to 4095");
  expect_config_refused(decoder(R"("4096": {"content": "a"})"), "id 4096 is outside");
  expect_config_refused(decoder(R"("-1": {"content": "a"})"), "id -1 is outside");
  expect_config_refused(decoder(R"("3841": "a")"), "the entry of id 3841 is not an object");
  expect_config_refused(decoder(R"("3841": {})"), "id 3841 has no \"content\" text");
  expect_config_refused(decoder(R"("3841": {"content": ""})"), "id 3841 has no \"content\" text");
  expect_config_refused(decoder(R"("3841": {"content": 5})"), "id 3841 has no \"content\" text");
  expect_config_refused(decoder(R"("3841": {"content": "a", "content": "b"})"), "occurs twice");
  expect_config_refused(decoder(R"("3841": {"content": "a"}, "3841": {"content": "b"})"), "id 3841 occurs twice");
  expect_config_refused(decoder(R"("3841": {"content": "a"}, "3842": {"content": "a"})"), "both named 'a'");
  expect_config_refused(decoder(R"("3841": {"content": "<|reserved_token_3850|>"})"),
                        "ids 3841 and 3850 are both named");
}

}  // namespace
}  // namespace trefoil
