// Text -> ids: special tokens, the reference's caps, the split and the merges, put together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/encode_caps.h"
#include "tokenizer/rank_bpe.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tiktoken_file.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

struct Vocabulary {
  Vocabulary(std::string_view tiktoken_model, const std::string& model_name, std::string_view tokenizer_config,
             const std::string& config_name)
      : bpe(parse_tiktoken(tiktoken_model, model_name)),
        specials(SpecialTokenSet::parse(tokenizer_config, config_name, bpe.size())) {}

  RankBpe bpe;
  SpecialTokenSet specials;
};

// Tokenizer::encode() with caps of one's own, for tests. In markup mode the caps count the special tokens' characters,
// as the reference does, but a cut inside a special token is left out: there the reference would take the token apart.
std::vector<int32_t> encode_text(const Vocabulary& vocabulary, std::string_view text, EncodeMode mode,
                                 const EncodeCaps& caps);

}  // namespace trefoil
