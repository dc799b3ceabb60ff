// Text -> ids: special tokens, the reference's caps, the split and the merges, put together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/encode_caps.h"
#include "tokenizer/rank_bpe.h"
#include "tokenizer/special_tokens.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

struct Vocabulary {
  // Tokens by rank, as parse_tiktoken() gives them, and the text of tokenizer_config.json, whose name is for messages.
  Vocabulary(const std::vector<std::string>& tokens, std::string_view config, const std::string& config_name)
      : bpe(tokens), specials(SpecialTokenSet::parse(config, config_name, bpe.size())) {}

  RankBpe bpe;
  SpecialTokenSet specials;
};

// Tokenizer::encode() with caps of one's own, for tests. In markup mode the caps count the special tokens' characters,
// as the reference does, but a cut inside a special token is left out: there the reference would take the token apart.
std::vector<int32_t> encode_text(const Vocabulary& vocabulary, std::string_view text, EncodeMode mode,
                                 const EncodeCaps& caps);

}  // namespace trefoil
