#include "tokenizer/utf8.h"

namespace trefoil {
namespace {

using Kind = Utf8Char::Kind;

struct LeadByte {
  uint8_t size;        // of the whole character; 0: not a lead byte
  uint8_t second_min;  // what the second byte may be; later ones are always 80..BF
  uint8_t second_max;
};

LeadByte classify(uint8_t lead) {
  if (lead < 0xC2)
    return {0, 0, 0};  // a continuation byte, or an overlong form of ASCII (ASCII itself never gets here)
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};  // above: surrogates
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char next_utf8(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {Kind::kValid, 1, lead};
  const LeadByte expected = classify(lead);
  if (expected.size == 0) return {Kind::kMalformed, 1, 0};
  for (uint8_t i = 1; i < expected.size; ++i) {
    if (i == text.size()) return {Kind::kCutOff, i, 0};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t min = i == 1 ? expected.second_min : 0x80;
    const uint8_t max = i == 1 ? expected.second_max : 0xBF;
    if (byte < min || byte > max) return {Kind::kMalformed, i, 0};
  }
  size_t pos = 0;
  return {Kind::kValid, expected.size, next_code_point(text, &pos)};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    if (static_cast<uint8_t>(text[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const Utf8Char character = next_utf8(text.substr(pos));
    if (character.kind != Kind::kValid) return pos;
    pos += character.size;
  }
  return std::string_view::npos;
}

void take_whole_characters(std::string* bytes, std::string* out) {
  size_t pos = 0;
  while (pos < bytes->size()) {
    const Utf8Char character = next_utf8(std::string_view(*bytes).substr(pos));
    if (character.kind == Kind::kCutOff) break;
    if (character.kind == Kind::kValid) {
      out->append(*bytes, pos, character.size);
    } else {
      out->append(kReplacementCharacter);
    }
    pos += character.size;
  }
  bytes->erase(0, pos);
}

}  // namespace trefoil
