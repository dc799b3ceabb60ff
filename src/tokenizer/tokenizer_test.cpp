#include "trefoil/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/sha256.h"
#include "support/test_support.h"
#include "tokenizer/encode.h"
#include "tokenizer/tiktoken_file.h"
#include "tokenizer/utf8.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::load(testing::tiny_k3_dir());
  return tokenizer;
}

std::string repeat(const std::string& text, int64_t times) {
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string sha256_of(const std::vector<int32_t>& ids) {
  return sha256_hex({reinterpret_cast<const std::byte*>(ids.data()), ids.size() * sizeof(int32_t)});
}

void append_utf8(std::string* out, uint32_t c) {
  const auto put = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
}

// Valid UTF-8 with every length of character, and much ASCII.
std::string random_text(std::mt19937_64* rng, int length) {
  std::string text;
  for (int i = 0; i < length; ++i) {
    const uint32_t limits[] = {0x80, 0x80, 0x100, 0x3000, 0x10000, 0x110000};
    uint32_t c = static_cast<uint32_t>((*rng)() % limits[(*rng)() % 6]);
    if (c >= 0xD800 && c < 0xE000) c -= 0x800;
    append_utf8(&text, c);
  }
  return text;
}

// --- against recorded ids ---

TEST(Tokenizer, GoldenTextsAndDocuments) {
  const Json golden = Json::parse(testing::read_text(testing::golden_dir() / "tokenizer.json"));
  for (const char* group : {"cases", "documents"}) {
    ASSERT_FALSE(golden[group].empty());
    for (const Json& test : golden[group]) {
      const auto text = test["text"].get<std::string>();
      EXPECT_EQ(tiny().encode(text), test["ids"].get<std::vector<int32_t>>()) << test["text"].dump().substr(0, 200);
      EXPECT_EQ(tiny().decode(test["ids"].get<std::vector<int32_t>>()), text);
    }
  }
}

TEST(Tokenizer, GoldenBigTexts) {
  const Json golden = Json::parse(testing::read_text(testing::golden_dir() / "tokenizer.json"));
  ASSERT_FALSE(golden["big"].empty());
  for (const Json& test : golden["big"]) {
    const std::vector<int32_t> ids = tiny().encode(repeat(test["text"], test["times"].get<int64_t>()));
    EXPECT_EQ(ids.size(), test["count"].get<size_t>()) << test.dump();
    EXPECT_EQ(sha256_of(ids), test["sha256"].get<std::string>()) << test.dump();
  }
}

// The real vocabulary cannot be bundled: TREFOIL_TOKENIZER_DIR names a folder with Kimi-K3's own two files.
TEST(Tokenizer, FirstPartyCasesOnTheRealVocabulary) {
  TREFOIL_NEED_FIXTURE(file, "k3-tokenizer-cases.json");
  const Json fixture = Json::parse(testing::read_text(file));
  const char* folder = std::getenv("TREFOIL_TOKENIZER_DIR");
  if (folder == nullptr || *folder == '\0')
    GTEST_SKIP() << "set TREFOIL_TOKENIZER_DIR to a folder with Kimi-K3's vocabulary";
  const std::string model = testing::read_text(testing::fs::path(folder) / "tiktoken.model");
  ASSERT_EQ(sha256_hex(as_bytes_of(model)), "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103");
  const std::string config = testing::read_text(testing::fs::path(folder) / "tokenizer_config.json");
  const Tokenizer tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer.num_base_tokens(), fixture["num_base_tokens"].get<int32_t>());
  EXPECT_EQ(tokenizer.vocab_size(), fixture["n_vocab"].get<int32_t>());
  for (const char* group : {"named_specials", "reserved_examples"}) {
    for (const auto& [id, name] : fixture[group].items()) {
      EXPECT_EQ(tokenizer.special_id(name.get<std::string>()), std::stoi(id));
    }
  }
  for (const Json& test : fixture["cases"]) {
    EXPECT_EQ(tokenizer.encode(test["text"].get<std::string>(), EncodeMode::kMarkup),
              test["ids"].get<std::vector<int32_t>>())
        << test.dump();
  }
  const Vocabulary vocabulary(parse_tiktoken(model, "tiktoken.model"), config, "tokenizer_config.json");
  for (const char* group : {"chunked", "outer"}) {
    for (const Json& test : fixture[group]) {
      EncodeCaps caps;
      caps.max_run = test["max_run"];
      caps.max_slice = test.value("max_chars", caps.max_slice);
      EXPECT_EQ(encode_text(vocabulary, test["text"].get<std::string>(), EncodeMode::kMarkup, caps),
                test["ids"].get<std::vector<int32_t>>())
          << test.dump();
    }
  }
}

// Without the vocabulary the fixture still says which pattern and caps the release uses.
TEST(Tokenizer, FirstPartyConstants) {
  TREFOIL_NEED_FIXTURE(file, "k3-tokenizer-cases.json");
  const Json fixture = Json::parse(testing::read_text(file));
  const Json split = Json::parse(testing::read_text(testing::golden_dir() / "tokenizer-split.json"));
  EXPECT_EQ(fixture["pat_str"], split["pattern"]);
  EXPECT_EQ(fixture["max_no_whitespaces_chars"], EncodeCaps().max_run);
  EXPECT_EQ(fixture["tiktoken_max_encode_chars"], EncodeCaps().max_slice);
  EXPECT_EQ(fixture["num_reserved_special_tokens"], kNumSpecialTokens);
}

// --- special tokens ---

TEST(Tokenizer, SpecialTokensHaveNamesBehindTheRanks) {
  EXPECT_EQ(tiny().num_base_tokens(), 3840);
  EXPECT_EQ(tiny().vocab_size(), 4096);
  EXPECT_EQ(tiny().special_id("<|end_of_msg|>"), 3842);
  EXPECT_EQ(tiny().special_id("<|reserved_token_3848|>"), 3848);
  EXPECT_EQ(tiny().special_id("[PAD]"), 4095);
  EXPECT_FALSE(tiny().special_id("<|reserved_token_4095|>").has_value());  // named [PAD]
  EXPECT_FALSE(tiny().special_id("the").has_value());
  EXPECT_FALSE(tiny().special_id("").has_value());
  EXPECT_FALSE(tiny().is_special(3839));
  EXPECT_TRUE(tiny().is_special(3840));
  EXPECT_TRUE(tiny().is_special(4095));
  EXPECT_FALSE(tiny().is_special(4096));
}

TEST(Tokenizer, MarkupFindsSpecialTokensInsideWords) {
  std::vector<int32_t> expected = tiny().encode("x\"");
  expected.push_back(*tiny().special_id("<|sep|>"));
  EXPECT_EQ(tiny().encode("x\"<|sep|>", EncodeMode::kMarkup), expected);
  for (const int32_t id : tiny().encode("y\\\"")) expected.push_back(id);
  EXPECT_EQ(tiny().encode("x\"<|sep|>y\\\"", EncodeMode::kMarkup), expected);
  EXPECT_EQ(tiny().decode(expected), "x\"<|sep|>y\\\"");
}

TEST(Tokenizer, MarkupEncodesEverySpecialTokenToItself) {
  std::string all;
  std::vector<int32_t> ids;
  for (int32_t id = tiny().num_base_tokens(); id < tiny().vocab_size(); ++id) {
    const std::string name(tiny().token_bytes(id));
    EXPECT_EQ(tiny().encode(name, EncodeMode::kMarkup), std::vector<int32_t>{id}) << name;
    EXPECT_EQ(tiny().decode(std::vector<int32_t>{id}), name);
    EXPECT_EQ(tiny().decode(std::vector<int32_t>{id}, SpecialTokens::kSkip), "");
    all += name;
    ids.push_back(id);
  }
  EXPECT_EQ(tiny().encode(all, EncodeMode::kMarkup), ids);
}

TEST(Tokenizer, TextCannotForgeSpecialTokens) {
  std::string all;
  for (int32_t id = tiny().num_base_tokens(); id < tiny().vocab_size(); ++id)
    all += "a" + std::string(tiny().token_bytes(id));
  for (const int32_t id : tiny().encode(all, EncodeMode::kText)) EXPECT_FALSE(tiny().is_special(id));
  EXPECT_EQ(tiny().decode(tiny().encode(all)), all);
}

TEST(Tokenizer, MarkupTakesNamesThatAreNotTokensAsText) {
  for (const char* text :
       {"<|not_a_real_token|>", "<| |>", "<|open|", "<|reserved_token_4095|>", "[bos]", "<|<|open"}) {
    EXPECT_EQ(tiny().encode(text, EncodeMode::kMarkup), tiny().encode(text)) << text;
  }
}

// A toy vocabulary: the 256 bytes, then what a test adds.
std::string toy_ranks(const std::vector<std::string>& base64_tokens) {
  static const char* kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int i = 0; i < 256; ++i)
    text += std::string{kAlphabet[i >> 2], kAlphabet[(i & 3) << 4]} + "== " + std::to_string(i) + "\n";
  for (size_t i = 0; i < base64_tokens.size(); ++i) text += base64_tokens[i] + " " + std::to_string(256 + i) + "\n";
  return text;
}

TEST(Tokenizer, MarkupTakesTheLongestOfSeveralNames) {
  const Tokenizer toy = Tokenizer::parse(
      toy_ranks({}),
      R"({"added_tokens_decoder": {"256": {"content": "<a>"}, "257": {"content": "<a>b"}, "300": {"content": "b"}}})");
  EXPECT_EQ(toy.encode("<a>b<a>cb", EncodeMode::kMarkup), (std::vector<int32_t>{257, 256, 'c', 300}));
}

TEST(Tokenizer, CapsNeverTakeASpecialTokenApart) {
  const Vocabulary toy(parse_tiktoken(toy_ranks({}), "m"), R"({"added_tokens_decoder": {"256": {"content": "<a>"}}})",
                       "c");
  for (int64_t cap = 1; cap < 9; ++cap) {
    EncodeCaps caps;
    caps.max_slice = cap;
    EXPECT_EQ(encode_text(toy, "xy<a>zw", EncodeMode::kMarkup, caps), (std::vector<int32_t>{'x', 'y', 256, 'z', 'w'}))
        << cap;
  }
}

// --- merging ---

// A merge list rebuilt from the ranks joins two parts of lower rank for each token. abcd = 256 has no such parts: it
// comes from abc = 258 and d, and abc from a and bc = 257. By rank it merges all the same ("newlines" on the real
// vocabulary).
TEST(Tokenizer, MergesByRankNotByAMergeList) {
  const Tokenizer toy = Tokenizer::parse(toy_ranks({"YWJjZA==", "YmM=", "YWJj"}), "{}");
  EXPECT_EQ(toy.encode("abcde"), (std::vector<int32_t>{256, 'e'}));
  EXPECT_EQ(toy.encode("abce"), (std::vector<int32_t>{258, 'e'}));
}

TEST(Tokenizer, MergesTheLowestRankAndOnATieTheLeftmost) {
  const Tokenizer toy = Tokenizer::parse(toy_ranks({"YmM=", "YWI=", "Y2Q="}), "{}");  // bc, ab, cd
  EXPECT_EQ(toy.encode("abcd"), (std::vector<int32_t>{'a', 256, 'd'}));
  const Tokenizer pairs = Tokenizer::parse(toy_ranks({"YWE="}), "{}");  // aa
  EXPECT_EQ(pairs.encode("aaa"), (std::vector<int32_t>{256, 'a'}));
  EXPECT_EQ(pairs.encode("aaaaa"), (std::vector<int32_t>{256, 256, 'a'}));
}

TEST(Tokenizer, WholePiecesWinEvenWhereMergingCannotReachThem) {
  // "abcd" = 256 has no token of two or three bytes below it, so no merge leads there.
  const Tokenizer toy = Tokenizer::parse(toy_ranks({"YWJjZA=="}), "{}");
  EXPECT_EQ(toy.encode("abcd"), (std::vector<int32_t>{256}));
  EXPECT_EQ(toy.encode("abcde"), (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e'}));
}

// --- decoding ---

TEST(Tokenizer, DecodeUndoesEncodeOnAnyText) {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_text(&rng, static_cast<int>(rng() % 200));
    EXPECT_EQ(tiny().decode(tiny().encode(text)), text);
    EXPECT_EQ(tiny().decode(tiny().encode(text, EncodeMode::kMarkup)), text);
    EXPECT_EQ(tiny().decode_bytes(tiny().encode(text)), text);
  }
}

// As Python 3.11's bytes.decode(errors="replace") gives them.
TEST(Tokenizer, MalformedBytesDecodeAsMaximalSubparts) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"\x80", "�"},
                                                                  {"a\xC3", "a�"},
                                                                  {"\xE4\xBD", "�"},
                                                                  {"\xE4\xBD\x41", "�A"},
                                                                  {"\xF0\x9F\x98", "�"},
                                                                  {"\xC0\xAF", "��"},
                                                                  {"\xED\xA0\x80", "���"},
                                                                  {"\xF5\x80", "��"},
                                                                  {"\xE0\x80\x80", "���"},
                                                                  {"\xF0\x9F\x98\xE4\xBD\xA0", "�你"},
                                                                  {"\xF4\x90\x80\x80", "����"},
                                                                  {"\xF0\x80", "��"},
                                                                  {"\xFF\xFE", "��"}};
  for (const auto& [bytes, text] : cases) {
    std::vector<int32_t> ids;  // tiny-k3 gives byte b the id b
    for (const char c : bytes) ids.push_back(static_cast<uint8_t>(c));
    EXPECT_EQ(tiny().decode(ids), text);
  }
}

TEST(StreamingDecoder, EqualsDecodeAndNeverEmitsPartOfACharacter) {
  std::mt19937_64 rng(13);
  for (int round = 0; round < 400; ++round) {
    std::vector<int32_t> ids;
    if (round % 2 == 0) {
      for (uint64_t i = 0, n = rng() % 40; i < n; ++i) {  // any tokens, malformed more often than not
        ids.push_back(static_cast<int32_t>(rng() % 3 == 0 ? rng() % 4096 : 0x80 + rng() % 0x80));
      }
    } else {
      for (const char c : random_text(&rng, 20)) ids.push_back(static_cast<uint8_t>(c));  // byte by byte
    }
    for (const SpecialTokens specials : {SpecialTokens::kNames, SpecialTokens::kSkip}) {
      StreamingDecoder stream(tiny(), specials);
      std::string text;
      for (const int32_t id : ids) {
        const std::string part = stream.push(id);
        EXPECT_EQ(find_invalid_utf8(part), std::string::npos);
        text += part;
      }
      text += stream.flush();
      EXPECT_EQ(text, tiny().decode(ids, specials));
    }
  }
}

TEST(StreamingDecoder, EmitsEachCharacterWithItsLastByte) {
  StreamingDecoder stream(tiny());
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x98), "");
  EXPECT_EQ(stream.push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push('x'), "�x");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push(*tiny().special_id("<|sep|>")), "�<|sep|>");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_THROW(stream.push(4096), Error);
  EXPECT_EQ(stream.flush(), "�");
  EXPECT_EQ(stream.flush(), "");
}

// --- refusals ---

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  for (const std::string& text : {std::string("abc\xFF"), std::string("abc\xE4\xBD"), std::string("abc\xED\xA0\x80")}) {
    for (const EncodeMode mode : {EncodeMode::kText, EncodeMode::kMarkup}) {
      try {
        tiny().encode(text, mode);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error.what(), HasSubstr("at offset 3"));
      }
    }
  }
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  for (const int32_t id : {-1, 4096, INT32_MAX, INT32_MIN}) {
    EXPECT_THROW(tiny().decode(std::vector<int32_t>{id}), Error) << id;
    EXPECT_THROW((void)tiny().token_bytes(id), Error) << id;
  }
}

TEST(Tokenizer, SaysWhichFileIsMissing) {
  const testing::TempDir folder;
  const auto expect_missing = [&](const char* name) {
    try {
      Tokenizer::load(folder.path());
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound);
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  };
  expect_missing("tiktoken.model");
  testing::write_text(folder.path() / "tiktoken.model", toy_ranks({}));
  expect_missing("tokenizer_config.json");
}

}  // namespace
}  // namespace trefoil
