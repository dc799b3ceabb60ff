#include "synthetic/vocabulary.h"

#include <gtest/gtest.h>

#include "trefoil/tokenizer.h"

namespace trefoil {
namespace {

Tokenizer made(int64_t vocab_size) {
  return Tokenizer::parse(write_tiktoken_model(vocab_size), write_tokenizer_config(vocab_size, 1048576));
}

TEST(Vocabulary, LoadsAtEverySize) {
  for (const int64_t size : {512, 513, 514, 515, 4096, 163840}) {
    const Tokenizer tokenizer = made(size);
    EXPECT_EQ(tokenizer.vocab_size(), size);
    EXPECT_EQ(tokenizer.special_id("[BOS]"), special_token_id(size, "[BOS]"));
    EXPECT_EQ(tokenizer.special_id("<|end_of_msg|>"), size - 254);
    EXPECT_EQ(tokenizer.special_id("[PAD]"), size - 1);
  }
}

TEST(Vocabulary, HasTheReleasesSpecialIdsAtItsSize) {
  EXPECT_EQ(special_token_id(163840, "[BOS]"), 163584);
  EXPECT_EQ(special_token_id(163840, "<|end_of_msg|>"), 163586);
  EXPECT_EQ(special_token_id(163840, "<|media_pad|>"), 163605);
  EXPECT_EQ(special_token_id(163840, "[PAD]"), 163839);
}

TEST(Vocabulary, EncodesAndDecodesAnyText) {
  const Tokenizer tokenizer = made(4096);
  const std::string text = "The quick brown fox, 1234: \xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x98\x80\n";
  const std::vector<int32_t> ids = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_LT(tokenizer.encode(" the lazy dog").size(), 8u);  // letters are joined
}

}  // namespace
}  // namespace trefoil
