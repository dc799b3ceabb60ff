#include "text/row_stream.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "support/compress.h"
#include "support/expect_error.h"
#include "support/test_support.h"
#include "text/pack_rows.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::load(testing::tiny_k3_dir());
  return tokenizer;
}

class RowStreamTest : public ::testing::Test {
 protected:
  fs::path file(const std::string& name, const std::string& text) {
    testing::write_text(folder_.path() / name, text);
    return folder_.path() / name;
  }
  // Documents of two, one or no ids and one of text, labelled by turns.
  std::string lines(int first, int count) {
    std::string out;
    for (int i = first; i < first + count; ++i) {
      const std::string content = i % 7 == 3   ? "\"input_ids\": []"
                                  : i % 5 == 1 ? fmt::format("\"text\": \"number {}\"", i)
                                               : fmt::format("\"input_ids\": [{}, {}]", i, i + 1000);
      out += fmt::format("{{{}, \"source\": \"{}\"}}\n", content, i % 2 == 0 ? "even" : "odd");
    }
    return out;
  }

 private:
  testing::TempDir folder_;
};

std::vector<int32_t> all_rows(RowStream& stream, int64_t row_length, int64_t max_rows) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < max_rows; ++i) {
    const auto row = stream.next_row(row_length);
    if (!row) break;
    ids.insert(ids.end(), row->begin(), row->end());
  }
  return ids;
}

// Batches of any size, from one document to all of them, and either compression: the ids of pack_rows().
TEST_F(RowStreamTest, GivesTheRowsOfPackRows) {
  const std::vector<fs::path> files = {file("a.jsonl", lines(0, 40)), file("b.jsonl.gz", testing::gzip(lines(40, 25))),
                                       file("c.txt", "plain text"), file("d.jsonl.zst", testing::zstd(lines(70, 30)))};
  std::vector<Document> documents;
  for (const fs::path& path : files) {
    for (Document& document : read_documents(path)) documents.push_back(std::move(document));
  }
  for (const uint64_t seed : {0, 1, 3}) {
    for (const int64_t max_rows : {3, 1000}) {
      const PackedRows packed = pack_rows(documents, tiny(), {5, max_rows, seed});
      for (const uint64_t batch_bytes : {uint64_t{1}, uint64_t{50}, uint64_t{1} << 30}) {
        RowStream stream(DocumentPool(files, seed, batch_bytes), tiny());
        EXPECT_EQ(all_rows(stream, 5, max_rows), packed.ids) << seed << " " << batch_bytes;
        EXPECT_EQ(stream.documents_read(), packed.num_documents);
      }
    }
  }
}

TEST_F(RowStreamTest, CountsTheTokensInRowsByFileAndBySource) {
  const fs::path a = file("a.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4], \"source\": \"x\"}\n");
  const fs::path b = file("b.jsonl", "{\"input_ids\": [5, 6, 7, 8], \"source\": \"x\"}\n");
  RowStream stream(DocumentPool({a, b}, 0), tiny());
  EXPECT_THAT(*stream.next_row(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(*stream.next_row(3), ElementsAre(4, 5, 6));
  EXPECT_FALSE(stream.next_row(3)) << "two ids are left, which are in no row";
  EXPECT_EQ(stream.tokens_of_file(0), 4);
  EXPECT_EQ(stream.tokens_of_file(1), 2);
  EXPECT_THAT(stream.tokens_of_source(), ElementsAre(Pair("a.jsonl", 3), Pair("x", 3)));
  EXPECT_EQ(stream.pool().num_documents(0), 2);
  EXPECT_EQ(stream.pool().num_documents(1), 1);
  EXPECT_EQ(stream.ids_read(), 8);
}

TEST_F(RowStreamTest, EveryLineIsCheckedAtFirst) {
  const fs::path bad = file("a.jsonl", lines(0, 20) + "{\"text\": 7}\n");
  EXPECT_TRUE(testing::fails_with(ErrorCode::kCorrupt, "a.jsonl:21", [&] { DocumentPool({bad}, 0); }));
}

TEST_F(RowStreamTest, AFileThatShrinksMeanwhileIsAnError) {
  const fs::path path = file("a.jsonl", lines(0, 20));
  RowStream stream(DocumentPool({path}, 0, 1), tiny());
  ASSERT_TRUE(stream.next_row(2));
  file("a.jsonl", lines(0, 3));
  EXPECT_TRUE(testing::fails_with(ErrorCode::kCorrupt, "fewer documents", [&] { all_rows(stream, 2, 100); }));
}

TEST_F(RowStreamTest, IdsOutsideTheVocabularyNameTheDocument) {
  const fs::path path = file("a.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [4096]}\n");
  RowStream stream(DocumentPool({path}, 0), tiny());
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "document 2 (a.jsonl): token id 4096",
                                  [&] { all_rows(stream, 1, 100); }));
}

}  // namespace
}  // namespace trefoil
