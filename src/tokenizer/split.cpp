#include "tokenizer/split.h"

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace trefoil {
namespace {

constexpr uint8_t kNoClass = 31;  // behind the end: its bit is in none of the sets below
constexpr uint32_t kHan = class_bit(kHanLetter) | class_bit(kHanNumber) | class_bit(kHanOther);
constexpr uint32_t kAnyNumber = class_bit(kNumber) | class_bit(kHanNumber);
constexpr uint32_t kWhiteSpace = class_bit(kSpace) | class_bit(kNewline) | class_bit(kBlank);
constexpr uint32_t kPunctuation = class_bit(kOther) | class_bit(kMark) | class_bit(kHanOther);  // [^\s\p{L}\p{N}]
constexpr uint32_t kCaseless = class_bit(kLetter) | class_bit(kMark);                           // UPPER and LOWER
constexpr uint32_t kUpperRun = class_bit(kUpper) | kCaseless;
constexpr uint32_t kLowerRun = class_bit(kLower) | kCaseless;
constexpr uint32_t kPrefix = kPunctuation | class_bit(kSpace) | class_bit(kBlank);  // [^\r\n\p{L}\p{N}]

}  // namespace

void Splitter::reset(std::string_view text) {
  TREFOIL_CHECK(text.size() < UINT32_MAX);
  text_ = text;
  pos_ = num_chars_ = 0;
  if (classes_.size() <= text.size()) {
    classes_.resize(text.size() + 1);
    offsets_.resize(text.size() + 1);
  }
  for (size_t at = 0; at < text.size(); ++num_chars_) {
    offsets_[num_chars_] = static_cast<uint32_t>(at);
    classes_[num_chars_] = char_class(next_code_point(text, &at));
  }
  offsets_[num_chars_] = static_cast<uint32_t>(text.size());
  classes_[num_chars_] = kNoClass;
}

std::string_view Splitter::next() {
  if (pos_ == num_chars_) return {};
  const size_t start = pos_;
  pos_ = piece_end(start);
  return text_.substr(offsets_[start], offsets_[pos_] - offsets_[start]);
}

size_t Splitter::skip(size_t i, uint32_t classes) const {
  while ((class_bits(i) & classes) != 0) ++i;
  return i;
}

size_t Splitter::piece_end(size_t start) const {
  const uint32_t first = class_bits(start);
  if (first & kHan) return skip(start, kHan);
  if (const size_t end = word_end(start); end != start) return end;
  if (first & kAnyNumber) {
    size_t end = start + 1;
    while (end < start + 3 && (class_bits(end) & kAnyNumber)) ++end;
    return end;
  }
  const size_t punctuation = first & class_bit(kSpace) ? start + 1 : start;
  if (class_bits(punctuation) & kPunctuation) return skip(skip(punctuation, kPunctuation), class_bit(kNewline));
  return blanks_end(start);
}

// Alternatives 2 and 3; `start` when neither matches. Let `run` be where the word proper begins and `end` where UPPER*
// stops. If a lower-case letter follows, LOWER+ goes on from there. Otherwise UPPER* must give back up to its last
// caseless character, which LOWER+ takes. Without one, the only caseless character left is a mark taken as prefix,
// alone. Without that too, alternative 2 fails, and what alternative 3 takes is upper case to the last.
size_t Splitter::word_end(size_t start) const {
  const size_t run = class_bits(start) & kPrefix ? start + 1 : start;
  const size_t end = skip(run, kUpperRun);
  if (class_bits(end) & class_bit(kLower)) return contraction_end(skip(end, kLowerRun));
  for (size_t i = end; i > run; --i) {
    if (class_bits(i - 1) & kCaseless) return contraction_end(i);
  }
  if (class_bits(start) & class_bit(kMark)) return contraction_end(start + 1);
  return end > run ? contraction_end(end) : start;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)? at code point i. U+017F folds to s; no other letter here has a third form.
size_t Splitter::contraction_end(size_t i) const {
  const std::string_view rest = text_.substr(offsets_[i]);
  if (rest.size() < 2 || rest[0] != '\'') return i;
  const auto lower = [&](size_t at) { return at < rest.size() ? static_cast<char>(rest[at] | 0x20) : '\0'; };
  const char first = lower(1), second = lower(2);
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return i + 2;
    case 'r':
    case 'v':
      return second == 'e' ? i + 3 : i;
    case 'l':
      return second == 'l' ? i + 3 : i;
    default:
      return rest.substr(1, 2) == "\xC5\xBF" ? i + 2 : i;
  }
}

// Alternatives 6, 7 and 8 on the white space that begins at `start`: up to the last line end in it; else all of it at
// the end of the text; else all but the last blank, which goes to what follows; else the only one.
size_t Splitter::blanks_end(size_t start) const {
  const size_t end = skip(start, kWhiteSpace);
  for (size_t i = end; i > start; --i) {
    if (class_bits(i - 1) & class_bit(kNewline)) return i;
  }
  if (end == num_chars_ || end == start + 1) return end;
  return end - 1;
}

}  // namespace trefoil
