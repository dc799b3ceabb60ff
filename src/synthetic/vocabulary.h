// A vocabulary of any size without a corpus: the 256 bytes, then strings of the letters a to z, with or without a blank
// before them, shorter ones first, then the 256 special tokens of the release.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trefoil {

constexpr int64_t kSmallestVocabulary = 512;  // the bytes and the special tokens
constexpr int64_t kLargestVocabulary = 1 << 20;

// tiktoken.model and tokenizer_config.json for `vocab_size` tokens.
std::string write_tiktoken_model(int64_t vocab_size);
std::string write_tokenizer_config(int64_t vocab_size, int64_t max_position_embeddings);

// The id of one of the special tokens that the release names, e.g. "[BOS]".
int64_t special_token_id(int64_t vocab_size, std::string_view name);

}  // namespace trefoil
