// Cuts text into the pieces inside which tokens may be merged: Kimi-K3's split pattern, without a regex engine.
//
// The pattern is eight alternatives tried in this order at each position (&& is set intersection):
//
//   1  [\p{Han}]+
//   2  [^\r\n\p{L}\p{N}]? UPPER* LOWER+ CONTRACTION?      UPPER = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
//   3  [^\r\n\p{L}\p{N}]? UPPER+ LOWER* CONTRACTION?      LOWER = [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
//   4  \p{N}{1,3}                                         CONTRACTION = (?i:'s|'t|'re|'ve|'m|'ll|'d)
//   5   ?[^\s\p{L}\p{N}]+[\r\n]*
//   6  \s*[\r\n]+
//   7  \s+(?!\S)
//   8  \s+
//
// Alternatives 2 and 3 backtrack in the reference, because UPPER and LOWER share the letters without case and the
// marks. split.cpp says where each ends instead of searching for it, so the time is linear and there is no limit to run
// into. split_test.cpp holds it against PCRE2 on every short string of classes, and against tiktoken on recorded
// pieces.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/unicode_class.h"

namespace trefoil {

// Walks over valid UTF-8. Buffers are kept from text to text: make one Splitter and reset() it.
class Splitter {
 public:
  // `text` must be valid UTF-8 under 4 GiB and outlive the walk.
  void reset(std::string_view text);
  // The next piece, never empty; an empty view at the end. The pieces joined are the text.
  std::string_view next();

 private:
  uint32_t class_bits(size_t i) const { return 1u << classes_[i]; }
  size_t skip(size_t i, uint32_t classes) const;
  size_t piece_end(size_t start) const;
  size_t word_end(size_t start) const;
  size_t contraction_end(size_t i) const;
  size_t blanks_end(size_t start) const;

  std::string_view text_;
  size_t num_chars_ = 0;           // code points of text_; the buffers may be longer
  std::vector<uint8_t> classes_;   // CharClass of each code point, then one that is in no class
  std::vector<uint32_t> offsets_;  // of each code point in text_, then the text's size
  size_t pos_ = 0;                 // the code point at which the next piece starts
};

}  // namespace trefoil
