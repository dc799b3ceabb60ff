#include "synthetic/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNumSpecial = 256;

// The release's special tokens, by their place behind the ranks. The others have no name of their own.
struct Special {
  int64_t place;
  std::string_view name;
};
constexpr Special kSpecials[] = {
    {0, "[BOS]"},
    {1, "[EOS]"},
    {2, "<|end_of_msg|>"},
    {3, "<|open|>"},
    {4, "<|close|>"},
    {5, "<|sep|>"},
    {6, "[start_header_id]"},
    {7, "[end_header_id]"},
    {9, "[EOT]"},
    {18, "<|media_begin|>"},
    {19, "<|media_content|>"},
    {20, "<|media_end|>"},
    {21, "<|media_pad|>"},
    {65, "<osagent_mode>"},
    {254, "[UNK]"},
    {255, "[PAD]"},
};

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// The next longer strings: a letter behind every one of `shorter`.
std::vector<std::string> one_letter_longer(const std::vector<std::string>& shorter) {
  std::vector<std::string> longer;
  longer.reserve(shorter.size() * 26);
  for (const std::string& text : shorter) {
    for (char letter = 'a'; letter <= 'z'; ++letter) longer.push_back(text + letter);
  }
  return longer;
}

std::vector<std::string> ranked_tokens(size_t count) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<std::string> last = {" "};
  for (char letter = 'a'; letter <= 'z'; ++letter) last.emplace_back(1, letter);
  while (tokens.size() < count) {
    last = one_letter_longer(last);
    const size_t taken = std::min(last.size(), count - tokens.size());
    tokens.insert(tokens.end(), last.begin(), last.begin() + static_cast<std::ptrdiff_t>(taken));
  }
  return tokens;
}

}  // namespace

std::string write_tiktoken_model(int64_t vocab_size) {
  std::string text;
  int64_t rank = 0;
  for (const std::string& token : ranked_tokens(static_cast<size_t>(vocab_size - kNumSpecial))) {
    fmt::format_to(std::back_inserter(text), "{} {}\n", base64(token), rank++);
  }
  return text;
}

std::string write_tokenizer_config(int64_t vocab_size, int64_t max_position_embeddings) {
  Json added = Json::object();
  for (const Special& special : kSpecials) {
    added[fmt::format("{}", vocab_size - kNumSpecial + special.place)] = {{"content", special.name}, {"lstrip", false},
                                                                          {"normalized", false},     {"rstrip", false},
                                                                          {"single_word", false},    {"special", true}};
  }
  const Json config = {{"added_tokens_decoder", added},
                       {"additional_special_tokens", Json::array()},
                       {"bos_token", "[BOS]"},
                       {"eos_token", "[EOS]"},
                       {"pad_token", "[PAD]"},
                       {"unk_token", "[UNK]"},
                       {"tokenizer_class", "TikTokenTokenizer"},
                       {"model_max_length", max_position_embeddings}};
  return config.dump(2) + "\n";
}

int64_t special_token_id(int64_t vocab_size, std::string_view name) {
  const auto* const special =
      std::find_if(std::begin(kSpecials), std::end(kSpecials), [&](const Special& s) { return s.name == name; });
  TREFOIL_CHECK(special != std::end(kSpecials));
  return vocab_size - kNumSpecial + special->place;
}

}  // namespace trefoil
