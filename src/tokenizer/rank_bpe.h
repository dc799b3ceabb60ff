// Byte pair encoding by ranks, as tiktoken defines it: of all neighbours whose joined bytes are a token, the pair with
// the lowest rank is merged first, the leftmost on a tie, until no joined neighbours are a token.
//
// This is not the same as replaying a merge list rebuilt from the ranks (a tokenizer.json): there a pair merges only as
// the list names it, here whenever the joined bytes are a token.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trefoil {

class RankBpe {
 public:
  // tokens[id] are the bytes of token `id`, distinct, all 256 single bytes among them (parse_tiktoken() checks).
  explicit RankBpe(std::vector<std::string> tokens);
  RankBpe(const RankBpe&) = delete;
  RankBpe& operator=(const RankBpe&) = delete;

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }

  // What merging needs besides the vocabulary; kept from piece to piece so that encoding does not allocate.
  struct Scratch {
    struct Part {
      uint32_t begin;
      uint32_t previous, next;  // indexes of Part; the number of parts behind the last
      int32_t merged_rank;      // of this part joined with the next; kNoRank
    };
    std::vector<Part> parts;     // one a byte at first; merging keeps the left part and drops the right one
    std::vector<uint64_t> heap;  // rank << 32 | left part, a min-heap; entries gone stale are skipped
  };

  // Appends the ids of `piece` (not empty, under 4 GiB) to *ids. O(n log n).
  void encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;

 private:
  static constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

  int32_t rank(std::string_view bytes) const;
  int32_t rank_with_next(std::string_view piece, const Scratch& scratch, uint32_t left) const;
  void merge_all(std::string_view piece, Scratch* scratch) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, int32_t> ranks_;  // views into tokens_
  size_t longest_ = 0;
};

}  // namespace trefoil
