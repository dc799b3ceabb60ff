// Byte pair encoding by ranks, as tiktoken defines it: of all neighbours whose joined bytes are a token, the pair with
// the lowest rank is merged first, the leftmost on a tie, until no joined neighbours are a token.
//
// This is not the same as replaying a merge list rebuilt from the ranks (a tokenizer.json): there a pair merges only as
// the list names it, here whenever the joined bytes are a token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/token_table.h"

namespace trefoil {

class RankBpe {
 public:
  // tokens[id] are the bytes of token `id`, distinct, all 256 single bytes among them (parse_tiktoken() checks).
  explicit RankBpe(std::span<const std::string> tokens) : table_(tokens) {}

  int32_t size() const { return table_.size(); }
  std::string_view token(int32_t id) const { return table_.token(id); }

  // What merging needs besides the vocabulary; kept from piece to piece so that encoding does not allocate.
  struct Scratch {
    struct ShortPart {
      uint32_t begin;
      int32_t merged_rank;  // of this part joined with the next; kNoRank
    };
    struct LongPart {           // part i begins at byte i
      uint32_t previous, next;  // the number of bytes behind the last
      int32_t merged_rank;
    };
    std::vector<ShortPart> short_parts;
    std::vector<LongPart> long_parts;
    std::vector<uint64_t> heap;  // rank << 32 | left part, a min-heap; entries gone stale are skipped
  };

  // Appends the ids of `piece` (not empty, under 4 GiB) to *ids. O(n log n).
  void encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;

 private:
  static constexpr int32_t kNoRank = TokenTable::kNoRank;

  int32_t byte_pair_rank(std::string_view piece, size_t i) const;
  // The same merges twice: looking for the lowest rank along the piece is quickest for words, a heap for long pieces.
  void encode_short(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;
  void encode_long(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;

  TokenTable table_;
};

}  // namespace trefoil
