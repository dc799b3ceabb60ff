// Text through a small vocabulary. What is UTF-8 comes back as it was in both modes, and text mode gives no special
// token. The first byte chooses small caps, so that cuts fall everywhere.
#include <string>

#include "base/check.h"
#include "fuzz.h"
#include "tokenizer/encode.h"
#include "tokenizer/utf8.h"

namespace {

using namespace trefoil;

// The 256 bytes, then some tokens that overlap.
std::vector<std::string> tokens() {
  std::vector<std::string> all;
  for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
  for (const char* token :
       {"bc", "ab", "abcd", "abc", "  ", "    ", "\n\n", " a", "\xE4\xBD", "\xE4\xBD\xA0", "<|", "|>", "'s"}) {
    all.emplace_back(token);
  }
  return all;
}

std::string decode(const Vocabulary& vocabulary, const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    bytes += id < vocabulary.bpe.size() ? vocabulary.bpe.token(id) : vocabulary.specials.token_name(id);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Vocabulary vocabulary(
      tokens(),
      R"({"added_tokens_decoder": {"269": {"content": "<|a|>"}, "270": {"content": "<|a|>b"}, "271": {"content": "你"}}})",
      "config");
  if (size == 0) return 0;
  EncodeCaps caps;
  caps.max_slice = 1 + data[0] % 16;
  caps.max_run = 1 + data[0] / 16;
  const std::string_view text = fuzz::as_text(data + 1, size - 1);
  for (const EncodeMode mode : {EncodeMode::kText, EncodeMode::kMarkup}) {
    for (const EncodeCaps& used : {caps, EncodeCaps()}) {
      std::vector<int32_t> ids;
      const bool accepted = fuzz::accepts([&] { ids = encode_text(vocabulary, text, mode, used); });
      TREFOIL_CHECK(accepted == (find_invalid_utf8(text) == std::string_view::npos));
      if (!accepted) return 0;
      TREFOIL_CHECK(decode(vocabulary, ids) == text);
      if (mode == EncodeMode::kText) {
        for (const int32_t id : ids) TREFOIL_CHECK(id < vocabulary.bpe.size());
      }
    }
  }
  return 0;
}
