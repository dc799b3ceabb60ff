#include "tokenizer/tiktoken_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr int64_t kMaxTokens = INT32_MAX - 256;  // ids are int32 and 256 special tokens follow

struct RankedToken {
  std::string bytes;
  int64_t rank = 0;
  int64_t line = 0;
};

std::array<int8_t, 256> base64_values() {
  std::array<int8_t, 256> values;
  values.fill(-1);
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i) values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  return values;
}

// RFC 4648 with padding; nothing when the text is anything but the one encoding of some bytes.
std::optional<std::string> decode_base64(std::string_view text) {
  static const std::array<int8_t, 256> kValues = base64_values();
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int8_t value = kValues[static_cast<uint8_t>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>(bits >> num_bits & 0xFF));
  }
  if (num_bits != static_cast<int>(2 * padding) || (bits & ((1u << num_bits) - 1)) != 0) return std::nullopt;
  return bytes;
}

RankedToken parse_line(std::string_view line, int64_t line_number, const std::string& name) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    fail(ErrorCode::kCorrupt, "{} line {}: no rank; expected '<base64> <rank>'", name, line_number);
  }
  std::optional<std::string> bytes = decode_base64(line.substr(0, space));
  if (!bytes) fail(ErrorCode::kCorrupt, "{} line {}: the token is not base64", name, line_number);
  if (bytes->empty()) fail(ErrorCode::kCorrupt, "{} line {}: the token is empty", name, line_number);
  const std::string_view digits = line.substr(space + 1);
  RankedToken token{std::move(*bytes), 0, line_number};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), token.rank);
  if (error != std::errc() || end != digits.data() + digits.size() || token.rank < 0) {
    fail(ErrorCode::kCorrupt, "{} line {}: the rank '{}' is not a number from 0 up", name, line_number,
         digits.substr(0, 32));
  }
  return token;
}

std::vector<RankedToken> parse_lines(std::string_view text, const std::string& name) {
  std::vector<RankedToken> tokens;
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!line.empty()) tokens.push_back(parse_line(line, line_number, name));
  }
  if (tokens.empty()) fail(ErrorCode::kCorrupt, "{}: holds no token", name);
  if (static_cast<int64_t>(tokens.size()) > kMaxTokens) {
    fail(ErrorCode::kCorrupt, "{}: {} tokens, more than the {} that ids can name", name, tokens.size(), kMaxTokens);
  }
  return tokens;
}

// tokens[i] has rank i from here on.
void order_by_rank(std::vector<RankedToken>* tokens, const std::string& name) {
  const auto by_rank = [](const RankedToken& a, const RankedToken& b) { return a.rank < b.rank; };
  if (!std::is_sorted(tokens->begin(), tokens->end(), by_rank)) {
    std::stable_sort(tokens->begin(), tokens->end(), by_rank);
  }
  for (size_t i = 0; i < tokens->size(); ++i) {
    const RankedToken& token = (*tokens)[i];
    const auto expected = static_cast<int64_t>(i);
    if (token.rank < expected) {
      fail(ErrorCode::kCorrupt, "{} line {}: rank {} was already given in line {}", name, token.line, token.rank,
           (*tokens)[i - 1].line);
    }
    if (token.rank > expected) {
      fail(ErrorCode::kCorrupt, "{} line {}: rank {}, but no line gives rank {}; {} tokens need ranks 0 to {}", name,
           token.line, token.rank, expected, tokens->size(), tokens->size() - 1);
    }
  }
}

void check_tokens(const std::vector<RankedToken>& tokens, const std::string& name) {
  std::unordered_map<std::string_view, int64_t> line_of;
  line_of.reserve(tokens.size());
  for (const RankedToken& token : tokens) {
    const auto [first, is_new] = line_of.emplace(token.bytes, token.line);
    if (!is_new) {
      fail(ErrorCode::kCorrupt, "{} line {}: the same token as in line {}", name, token.line, first->second);
    }
  }
  for (int value = 0; value < 256; ++value) {
    const char byte = static_cast<char>(value);
    if (!line_of.contains(std::string_view(&byte, 1))) {
      fail(ErrorCode::kCorrupt, "{}: no token for the single byte {:#04x}; every byte needs one", name, value);
    }
  }
}

}  // namespace

std::vector<std::string> parse_tiktoken(std::string_view text, const std::string& name) {
  std::vector<RankedToken> ranked = parse_lines(text, name);
  order_by_rank(&ranked, name);
  check_tokens(ranked, name);
  std::vector<std::string> tokens;
  tokens.reserve(ranked.size());
  for (RankedToken& token : ranked) tokens.push_back(std::move(token.bytes));
  return tokens;
}

}  // namespace trefoil
