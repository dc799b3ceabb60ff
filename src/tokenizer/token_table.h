// A vocabulary as bytes <-> rank: one block of bytes and an open-addressing table into it. The merge loop spends its
// time here, and a std::unordered_map<std::string_view, int32_t> made encoding about half as fast.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

class TokenTable {
 public:
  static constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();  // above every rank

  // tokens[rank] are the bytes of a token, distinct and not empty.
  explicit TokenTable(std::span<const std::string> tokens);

  int32_t size() const { return static_cast<int32_t>(ends_.size()) - 1; }
  std::string_view token(int32_t rank) const {
    const size_t begin = ends_[static_cast<size_t>(rank)];
    return std::string_view(bytes_).substr(begin, ends_[static_cast<size_t>(rank) + 1] - begin);
  }
  // kNoRank when `bytes` (not empty) is no token.
  int32_t rank(std::string_view bytes) const;
  // The same for two bytes.
  int32_t pair_rank(uint8_t first, uint8_t second) const { return pairs_[size_t{first} << 8 | second]; }

 private:
  struct Slot {
    uint32_t tag;  // the upper half of the token's hash
    int32_t rank;  // kNoRank: the slot is free
  };

  std::string bytes_;
  std::vector<uint64_t> ends_;  // token i is bytes_[ends_[i], ends_[i + 1])
  std::vector<Slot> slots_;     // a power of two, at most half of them taken
  std::vector<int32_t> pairs_;  // [256 * 256]
  size_t longest_ = 0;
};

}  // namespace trefoil
