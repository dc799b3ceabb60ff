#include "checkpoint/text_stream.h"

#include <gtest/gtest.h>

#include "support/compress.h"
#include "support/expect_error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

// printf 'hello hello hello\n' | gzip -n
constexpr std::string_view kHello(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x5c\x00\x3b\x7c\x8a\xdf\x12\x00\x00"
    "\x00",
    29);

class TextStreamTest : public ::testing::Test {
 protected:
  fs::path file(const std::string& name, const std::string& bytes) {
    testing::write_text(folder_.path() / name, bytes);
    return folder_.path() / name;
  }

 private:
  testing::TempDir folder_;
};

TEST_F(TextStreamTest, TheNameTellsTheCompression) {
  EXPECT_EQ(compression_of("a.jsonl.gz"), Compression::kGzip);
  EXPECT_EQ(compression_of("a.zst"), Compression::kZstd);
  EXPECT_EQ(compression_of("a.gz.txt"), Compression::kNone);
  EXPECT_EQ(uncompressed_name("x/a.jsonl.gz"), "x/a.jsonl");
  EXPECT_EQ(uncompressed_name("x/a.jsonl"), "x/a.jsonl");
}

TEST_F(TextStreamTest, EveryCompressionGivesTheText) {
  std::string text;
  for (int i = 0; i < 400000; ++i) text += static_cast<char>('a' + i * i % 23);
  for (const std::string& wanted : {std::string(), std::string("x"), text}) {
    EXPECT_EQ(read_text_stream(file("a.txt", wanted), text.size()), wanted);
    EXPECT_EQ(read_text_stream(file("a.txt.gz", testing::gzip(wanted)), text.size()), wanted);
    EXPECT_EQ(read_text_stream(file("a.txt.zst", testing::zstd(wanted)), text.size()), wanted);
  }
}

TEST_F(TextStreamTest, ReadsAnyNumberOfBytesAtATime) {
  const std::string text(3000, 'y');
  for (const char* name : {"a.txt", "a.txt.gz", "a.txt.zst"}) {
    const Compression compression = compression_of(name);
    TextStream stream(file(name, compression == Compression::kGzip   ? testing::gzip(text)
                                 : compression == Compression::kZstd ? testing::zstd(text)
                                                                     : text));
    std::string read;
    size_t got = 1;
    for (size_t count = 1; got != 0; count = count * 3 + 1) {
      std::string piece(count, '\0');
      got = stream.read(std::as_writable_bytes(std::span(piece)), "place");
      read += piece.substr(0, got);
    }
    EXPECT_EQ(read, text) << name;
  }
}

TEST_F(TextStreamTest, RefusesMoreThanTheLimit) {
  const std::string text(100, 'z');
  for (const auto& [name, bytes] :
       {std::pair{"a.txt", text}, {"a.gz", testing::gzip(text)}, {"a.zst", testing::zstd(text)}}) {
    EXPECT_EQ(read_text_stream(file(name, bytes), 100), text);
    EXPECT_TRUE(testing::fails_with(ErrorCode::kCorrupt, "longer than 99 bytes",
                                    [&, path = file(name, bytes)] { read_text_stream(path, 99); }));
  }
}

TEST_F(TextStreamTest, GzipReadsWhatGzipWrote) {
  EXPECT_EQ(read_text_stream(file("a.gz", std::string(kHello)), 100), "hello hello hello\n");
}

TEST_F(TextStreamTest, GzipRefusesEveryTruncation) {
  for (size_t size = 0; size < kHello.size(); ++size) {
    const fs::path path = file("a.gz", std::string(kHello.substr(0, size)));
    EXPECT_THROW(read_text_stream(path, 100), Error) << size;
  }
}

TEST_F(TextStreamTest, GzipRefusesDamageAndBytesBehindTheEnd) {
  std::string damaged(kHello);
  damaged[12] ^= 1;
  for (const std::string& bytes : {damaged, std::string(kHello) + '\0'})
    EXPECT_THROW(read_text_stream(file("a.gz", bytes), 100), Error);
}

// 100 MB of one letter in 100 kB of gzip and 10 kB of zstd.
TEST_F(TextStreamTest, RefusesDataThatExpandWithoutEnd) {
  const std::string text(100'000'000, 'a');
  for (const fs::path& path : {file("a.gz", testing::gzip(text)), file("a.zst", testing::zstd(text))}) {
    EXPECT_LT(fs::file_size(path), 200'000u);
    EXPECT_TRUE(testing::fails_with(ErrorCode::kCorrupt, "is no text", [&] { read_text_stream(path, 1ull << 30); }));
  }
}

}  // namespace
}  // namespace trefoil
