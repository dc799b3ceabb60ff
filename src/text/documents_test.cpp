#include "text/documents.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/bytes.h"
#include "base/sha256.h"
#include "support/compress.h"
#include "support/test_support.h"
#include "text/line_reader.h"
#include "text/pack_rows.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Documents : public ::testing::Test {
 protected:
  fs::path file(const std::string& name, const std::string& text) {
    testing::write_text(folder_.path() / name, text);
    return folder_.path() / name;
  }
  void expect_refused(const std::string& name, const std::string& text, const std::string& message,
                      ErrorCode code = ErrorCode::kCorrupt, const DocumentOptions& options = {}) {
    try {
      read_documents(file(name, text), options);
      ADD_FAILURE() << "accepted: " << text.substr(0, 100);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(message));
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  }

 private:
  testing::TempDir folder_;
};

TEST_F(Documents, JsonLinesGiveTextOrIds) {
  const auto documents =
      read_documents(file("a.jsonl",
                          "\xEF\xBB\xBF{\"text\": \"one\\u0000\\n\", \"source\": \"s\", \"meta\": {\"k\": [1]}}\r\n"
                          "\n  \t\n"
                          "{\"input_ids\": [0, 4095, 2147483647]}\n"
                          "{\"text\": \"\"}"));
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].text, std::string("one\0\n", 5));
  EXPECT_EQ(documents[0].source, "s");
  EXPECT_FALSE(documents[0].has_ids);
  EXPECT_TRUE(documents[1].has_ids);
  EXPECT_THAT(documents[1].input_ids, ElementsAre(0, 4095, INT32_MAX));
  EXPECT_EQ(documents[1].source, "a.jsonl");
  EXPECT_EQ(documents[2].text, "");
}

TEST_F(Documents, PlainTextIsOneDocument) {
  const std::string text = "{\"text\": \"not JSON here\"}\r\nsecond — line\n";
  const auto documents = read_documents(file("a.txt", text));
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0].text, text);
  EXPECT_EQ(documents[0].source, "a.txt");
  DocumentOptions as_text;
  as_text.format = DocumentFormat::kText;
  EXPECT_EQ(read_documents(file("b.jsonl", text), as_text)[0].text, text);
  DocumentOptions as_lines;
  as_lines.format = DocumentFormat::kJsonLines;
  EXPECT_EQ(read_documents(file("c.txt", "{\"text\": \"x\"}"), as_lines)[0].text, "x");
}

TEST_F(Documents, MessagesAreRenderedAsAFinishedConversation) {
  const auto documents = read_documents(
      file("a.jsonl",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"source\": \"chat\"}\n"
           "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"add_generation_prompt\": true}\n"));
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].source, "chat");
  EXPECT_EQ(documents[0].text, "");
  ChatRequest request = parse_chat_request(R"({"messages": [{"role": "user", "content": "hi"}]})");
  EXPECT_EQ(documents[1].segments, render_chat(request));
  request.add_generation_prompt = false;
  EXPECT_EQ(documents[0].segments, render_chat(request));
}

TEST_F(Documents, BadConversationsAreRefusedNamingLineAndMessage) {
  const std::string good = "{\"text\": \"x\"}\n";
  expect_refused("a.jsonl", good + R"({"messages": [{"role": "user", "content": "a"}, {"role": "user"}]})",
                 "a.jsonl:2: messages[1]: no \"content\"");
  expect_refused("a.jsonl", good + R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
                 "a.jsonl:2: 0 images for 1 places");
  expect_refused("a.jsonl", good + R"({"messages": [{"role": "critic", "content": "a"}]})", "a.jsonl:2: messages[0]",
                 ErrorCode::kUnsupported);
  expect_refused("a.jsonl", good + R"({"messages": [{"role": "user", "content": "a"}], "text": "x"})",
                 "a.jsonl:2: has more than one of");
}

// --- compressed files ---

TEST_F(Documents, CompressedFilesGiveTheSameDocuments) {
  std::string lines;
  for (int i = 0; i < 40000; ++i) lines += fmt::format("{{\"text\": \"line {} {}\"}}\n", i, i * 7919 % 100003);
  const auto plain = read_documents(file("a.jsonl", lines));
  ASSERT_EQ(plain.size(), 40000u);
  const std::string half = lines.substr(0, lines.size() / 2), rest = lines.substr(half.size());
  const std::pair<const char*, std::string> forms[] = {
      {"a.jsonl.gz", testing::gzip(lines)},
      {"a.jsonl.zst", testing::zstd(lines)},
      {"b.jsonl.gz", testing::gzip(half) + testing::gzip("") + testing::gzip(rest)},
      {"b.jsonl.zst", testing::zstd(half) + testing::zstd("") + testing::zstd(rest)}};
  for (const auto& [name, bytes] : forms) {
    const auto documents = read_documents(file(name, bytes));
    ASSERT_EQ(documents.size(), plain.size()) << name;
    for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(documents[i].text, plain[i].text) << name << " " << i;
    EXPECT_EQ(documents[0].source, name);
  }
  EXPECT_EQ(read_documents(file("a.txt.gz", testing::gzip(lines)))[0].text, lines);
  EXPECT_EQ(read_documents(file("a.txt.zst", testing::zstd(lines)))[0].text, lines);
}

TEST_F(Documents, TruncatedCompressedFilesAreRefusedNamingTheLine) {
  const std::string lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  const std::pair<const char*, std::string> forms[] = {{"a.jsonl.gz", testing::gzip(lines)},
                                                       {"a.jsonl.zst", testing::zstd(lines)}};
  for (const auto& [name, bytes] : forms) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      expect_refused(name, bytes.substr(0, size), std::string(name) + ":");
      if (HasFatalFailure()) return;
    }
    expect_refused(name, bytes.substr(0, bytes.size() - 1), "data end too early");
    expect_refused(name, bytes + "not a frame and not a member", "damaged");
    expect_refused(name, lines, "damaged");
  }
}

TEST_F(Documents, ATruncatedLineIsNamedByItsNumber) {
  std::string lines;  // hard to compress, so that half of the bytes hold about half of the 4000 lines
  std::mt19937_64 random(5);
  for (int i = 0; i < 4000; ++i) {
    lines += "{\"text\": \"";
    for (int k = 0; k < 50; ++k) lines += fmt::format("{:016x}", random());
    lines += "\"}\n";
  }
  for (const auto& [name, bytes] :
       {std::pair{"a.jsonl.gz", testing::gzip(lines)}, {"a.jsonl.zst", testing::zstd(lines)}}) {
    int64_t whole = 0;
    std::string message;
    try {
      for_each_document(file(name, bytes.substr(0, bytes.size() / 2)), {}, [&](const Document&) { ++whole; });
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_GT(whole, 1000) << name;
    EXPECT_THAT(message, HasSubstr(fmt::format("{}:{}: the ", name, whole + 1)));
  }
}

TEST_F(Documents, RefusesWhatIsNotADocument) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"text\": \"x\"", "a.jsonl:2: not JSON"},
      {"{\"text\": \"x\"} trailing", "a.jsonl:2: not JSON"},
      {"{'text': 'x'}", "a.jsonl:2: not JSON"},
      {"{\"text\": \"raw\x01\"}", "a.jsonl:2: not JSON"},
      {"{\"text\": \"\xFF\"}", "a.jsonl:2: not JSON"},
      {"{\"text\": \"\\ud800\"}", "a.jsonl:2: not JSON"},
      {"[{\"text\": \"x\"}]", "a.jsonl:2: expected an object"},
      {"\"x\"", "a.jsonl:2: expected an object"},
      {"{}", "neither"},
      {"{\"Text\": \"x\"}", "neither"},
      {"{\"text\": null}", "\"text\" is not a string"},
      {"{\"text\": 7}", "\"text\" is not a string"},
      {"{\"text\": \"x\", \"source\": 1}", "\"source\" is not a string"},
      {"{\"text\": \"x\", \"text\": \"y\"}", "occurs twice"},
      {"{\"text\": \"x\", \"input_ids\": [1]}", "more than one of"},
      {"{\"input_ids\": 5}", "not an array"},
      {"{\"input_ids\": [1, -1]}", "\"input_ids\"[1]"},
      {"{\"input_ids\": [1.0]}", "\"input_ids\"[0]"},
      {"{\"input_ids\": [true]}", "\"input_ids\"[0]"},
      {"{\"input_ids\": [\"1\"]}", "\"input_ids\"[0]"},
      {"{\"input_ids\": [2147483648]}", "\"input_ids\"[0]"},
      {"{\"input_ids\": [18446744073709551616]}", "a.jsonl:2"},
  };
  for (const auto& [line, message] : cases)
    expect_refused("a.jsonl", std::string("{\"text\": \"ok\"}\n") + line, message);
  expect_refused("a.jsonl", "{\"text\": \"ok\"}\n" + std::string(5000, '['), "a.jsonl:2: not JSON");
  expect_refused("a.jsonl", std::string("{\"text\": \"ok\"}\n\0\n", 17), "a.jsonl:2: not JSON");
}

TEST_F(Documents, RefusesFilesWithoutDocuments) {
  expect_refused("a.jsonl", "", "holds no document");
  expect_refused("a.jsonl", "\n \n\r\n", "holds no document");
  expect_refused("a.jsonl", "\xEF\xBB\xBF", "holds no document");
  expect_refused("a.txt", "", "the file is empty");
}

TEST_F(Documents, RefusesPlainTextThatIsNotText) {
  expect_refused("a.txt", "one\ntwo\n\xFF", "a.txt:3: not UTF-8: byte 0xff at offset 8");
  expect_refused("a.txt", std::string("h\0i\0", 4), "a.txt:1: a NUL byte at offset 1");
  expect_refused("a.txt", "\x01\x02 ELF", "a.txt: 2 of its 6 bytes are control characters; is this text?");
}

TEST_F(Documents, RefusesDocumentsOverTheLimit) {
  DocumentOptions options;
  options.max_document_bytes = 20;
  expect_refused("a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"too long for it\"}\n",
                 "a.jsonl:2: the line is longer than 20", ErrorCode::kCorrupt, options);
  expect_refused("a.jsonl", "{\"text\": \"123456789\"}", "a.jsonl:1: the line is longer than 20", ErrorCode::kCorrupt,
                 options);
  expect_refused("a.txt", std::string(21, 'x'), "a.txt", ErrorCode::kCorrupt, options);
  EXPECT_EQ(read_documents(file("b.jsonl", "{\"text\": \"12345678\"}\n{\"text\": \"x\"}"), options).size(), 2u);
}

TEST_F(Documents, LinesCrossReadBoundaries) {
  const std::string ends[] = {"\n", "\r\n"};
  for (const std::string& end : ends) {
    for (const size_t length : {size_t{1048574}, size_t{1048575}, size_t{1048576}, size_t{1048577}, size_t{3000000}}) {
      const std::string line(length, 'x');
      LineReader reader(file("a", line + end + end + "last"), 1 << 28);
      std::string read;
      ASSERT_TRUE(reader.next(&read));
      EXPECT_TRUE(read == line) << length;
      ASSERT_TRUE(reader.next(&read));
      EXPECT_EQ(read, "");
      ASSERT_TRUE(reader.next(&read));
      EXPECT_EQ(read, "last");
      EXPECT_THAT(reader.place(), HasSubstr("a:3"));
      EXPECT_FALSE(reader.next(&read));
    }
  }
}

TEST_F(Documents, MissingFilesAreNamed) {
  try {
    read_documents("/nonexistent/x.jsonl");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/x.jsonl"));
  }
}

// --- rows ---

Document ids_document(std::vector<int32_t> ids) {
  return {"made", "", std::move(ids), true};
}

PackOptions pack(int64_t seq_len, int64_t max_rows = 0, uint64_t seed = 0) {
  return {seq_len, max_rows, seed};
}

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::load(testing::tiny_k3_dir());
  return tokenizer;
}

TEST(PackRows, ConcatenatesAndCuts) {
  const std::vector<Document> documents = {ids_document({1, 2, 3}), ids_document({}), ids_document({4, 5}),
                                           ids_document({6, 7, 8})};
  const PackedRows rows = pack_rows(documents, tiny(), pack(3));
  EXPECT_THAT(rows.ids, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(rows.num_rows(), 2);
  EXPECT_THAT(rows.row(1), ElementsAre(4, 5, 6));
  EXPECT_EQ(rows.dropped_ids, 2);
  EXPECT_EQ(rows.num_documents, 4);
  const uint8_t bytes[] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0};
  EXPECT_EQ(rows.sha256, sha256_hex(std::as_bytes(std::span(bytes))));
}

TEST(PackRows, StopsAfterMaxRows) {
  const std::vector<Document> documents = {ids_document({1, 2, 3, 4, 5}), ids_document({4, 5, 9}),
                                           ids_document({6, 7, 8})};
  const PackedRows rows = pack_rows(documents, tiny(), pack(2, 3));
  EXPECT_THAT(rows.ids, ElementsAre(1, 2, 3, 4, 5, 4));
  EXPECT_EQ(rows.num_documents, 2);
  EXPECT_EQ(rows.dropped_ids, 2);
  EXPECT_EQ(pack_rows(documents, tiny(), pack(2, 100)).num_rows(), 5);
}

TEST(PackRows, EncodesTextInTextMode) {
  const std::vector<Document> documents = {{"made", "<|open|>hello", {}, false}, {"made", " world", {}, false}};
  std::vector<int32_t> expected = tiny().encode("<|open|>hello");
  for (const int32_t id : tiny().encode(" world")) expected.push_back(id);
  EXPECT_EQ(pack_rows(documents, tiny(), pack(1)).ids, expected);
}

TEST(PackRows, RefusesWhatMakesNoRow) {
  const std::vector<Document> documents = {ids_document({1, 2, 3})};
  EXPECT_THROW(pack_rows(documents, tiny(), pack(4)), Error);
  EXPECT_THROW(pack_rows({}, tiny(), pack(1)), Error);
  EXPECT_THROW(pack_rows(documents, tiny(), pack(0)), Error);
  EXPECT_THROW(pack_rows(documents, tiny(), pack(-1)), Error);
  EXPECT_THROW(pack_rows(documents, tiny(), pack(1, -1)), Error);
  EXPECT_THROW(pack_rows(documents, tiny(), pack(INT64_MAX, INT64_MAX)), Error);
}

TEST(PackRows, RefusesIdsOutsideTheVocabulary) {
  const std::vector<Document> documents = {ids_document({1}), ids_document({1, 4096})};
  try {
    pack_rows(documents, tiny(), pack(1));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("document 2 (made): token id 4096"));
  }
}

TEST(PackRows, SeedsOrderDocumentsTheSameEverywhere) {
  EXPECT_THAT(document_order(5, 0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(document_order(0, 1).empty());
  EXPECT_THAT(document_order(1, 1), ElementsAre(0));
  EXPECT_THAT(document_order(8, 1),
              ElementsAre(0, 3, 7, 1, 2, 6, 5, 4));  // computed apart, from the header's description
  EXPECT_THAT(document_order(8, 3), ElementsAre(2, 5, 1, 6, 7, 3, 4, 0));
  EXPECT_THAT(document_order(2, 3), ElementsAre(1, 0));
}

TEST(PackRows, BundledTexts) {
  const auto documents = read_documents(testing::text_dir() / "calibration.jsonl");
  EXPECT_EQ(documents.size(), 67u);
  EXPECT_EQ(documents[0].source, "postgres");
  const PackedRows rows = pack_rows(documents, tiny(), pack(256, 16, 3));
  EXPECT_EQ(rows.num_rows(), 16);
  EXPECT_EQ(rows.ids.size(), 16u * 256u);
}

}  // namespace
}  // namespace trefoil
