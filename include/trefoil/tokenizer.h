// Text <-> token ids, as Kimi-K3 does it: tiktoken ranks behind K3's own split, 256 special tokens after the ranks.
//
// Two ways to encode. kText: every character is ordinary, so no text can forge a special token; users', tools' and
// documents' text always goes this way. kMarkup: the names of special tokens become their ids. No BOS or EOS is ever
// added. encode(a) + encode(b) is in general not encode(a + b). Details: docs/architecture.md, "Tokenizer".
//
// A loaded Tokenizer never changes: copies share it, and every const member may be called from several threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

enum class EncodeMode {
  kText,    // the names of special tokens are ordinary characters
  kMarkup,  // the names of special tokens become their ids: leftmost first, the longest where several start
};

enum class SpecialTokens {
  kNames,  // decode to their names
  kSkip,   // decode to nothing
};

class Tokenizer {
 public:
  // Reads `tiktoken.model` and `tokenizer_config.json` in `folder`. Error(kNotFound) when one is absent,
  // Error(kCorrupt) with file and line when its bytes make no tokenizer.
  static Tokenizer load(const std::filesystem::path& folder);
  // The same from the files' contents; the names go into messages.
  static Tokenizer parse(std::string_view tiktoken_model, std::string_view tokenizer_config,
                         const std::string& model_name = "tiktoken.model",
                         const std::string& config_name = "tokenizer_config.json");

  // Ids of `text`, which must be UTF-8: Error(kInvalidArgument) with the offset of the first byte that is not.
  // O(n log n) in the length of the text, whatever it holds.
  std::vector<int32_t> encode(std::string_view text, EncodeMode mode = EncodeMode::kText) const;

  // The tokens' bytes, one after the other, read as UTF-8: each maximal malformed sequence becomes one U+FFFD (as
  // Python's errors="replace"). Error(kInvalidArgument) for an id outside [0, vocab_size()).
  std::string decode(std::span<const int32_t> ids, SpecialTokens specials = SpecialTokens::kNames) const;
  // The bytes as they are.
  std::string decode_bytes(std::span<const int32_t> ids, SpecialTokens specials = SpecialTokens::kNames) const;

  int32_t vocab_size() const;       // num_base_tokens() + 256
  int32_t num_base_tokens() const;  // ids below are ranks, ids from here on are special
  bool is_special(int32_t id) const { return id >= num_base_tokens() && id < vocab_size(); }
  // The id of the special token with this name; nothing for ordinary text.
  std::optional<int32_t> special_id(std::string_view name) const;
  // The bytes of a token, or the name of a special one. Error(kInvalidArgument) outside the vocabulary.
  std::string_view token_bytes(int32_t id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// Decodes a stream of ids without ever emitting part of a character: what push() and flush() return, joined, is
// Tokenizer::decode() of all ids. One stream each; not thread-safe.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer, SpecialTokens specials = SpecialTokens::kNames);

  // The text that `id` completes; possibly empty. Throws as Tokenizer::decode(), and the stream is then unchanged.
  std::string push(int32_t id);
  // The end: what was held back of an incomplete character becomes one U+FFFD. The decoder is then as new.
  std::string flush();

 private:
  Tokenizer tokenizer_;
  SpecialTokens specials_;
  std::string held_;  // the well-formed beginning of a character, at most three bytes
};

}  // namespace trefoil
