#include "tokenizer/token_table.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"

namespace trefoil {
namespace {

uint64_t mix(uint64_t hash, uint64_t word) {
  const auto product = static_cast<unsigned __int128>(hash ^ word) * 0x9E3779B97F4A7C15;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Eight bytes at a time; the last, and texts under eight bytes, are read as two overlapping words.
uint64_t hash_of(std::string_view bytes) {
  const char* at = bytes.data();
  const size_t size = bytes.size();
  uint64_t hash = 0xD1B54A32D192ED03 + size;
  if (size >= 8) {
    for (const char* last = at + size - 8; at < last; at += 8) hash = mix(hash, load<uint64_t>(at));
    hash = mix(hash, load<uint64_t>(bytes.data() + size - 8));
  } else if (size >= 4) {
    hash = mix(hash, uint64_t{load<uint32_t>(at)} << 32 | load<uint32_t>(at + size - 4));
  } else {
    const auto byte = [&](size_t i) { return uint64_t{static_cast<uint8_t>(at[i])}; };
    hash = mix(hash, byte(0) << 16 | byte(size / 2) << 8 | byte(size - 1));
  }
  return mix(hash, hash >> 32);
}

}  // namespace

TokenTable::TokenTable(std::span<const std::string> tokens) {
  slots_.assign(std::bit_ceil(2 * tokens.size() + 1), {0, kNoRank});
  pairs_.assign(size_t{1} << 16, kNoRank);
  ends_.push_back(0);
  for (const std::string& token : tokens) {
    const auto new_rank = static_cast<int32_t>(ends_.size() - 1);
    bytes_ += token;
    ends_.push_back(bytes_.size());
    longest_ = std::max(longest_, token.size());
    const uint64_t hash = hash_of(token);
    size_t i = hash & (slots_.size() - 1);
    while (slots_[i].rank != kNoRank) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {static_cast<uint32_t>(hash >> 32), new_rank};
    if (token.size() == 2) {
      pairs_[size_t{static_cast<uint8_t>(token[0])} << 8 | static_cast<uint8_t>(token[1])] = new_rank;
    }
  }
}

int32_t TokenTable::rank(std::string_view bytes) const {
  if (bytes.size() > longest_) return kNoRank;
  const uint64_t hash = hash_of(bytes);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & (slots_.size() - 1); slots_[i].rank != kNoRank; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].tag == tag && token(slots_[i].rank) == bytes) return slots_[i].rank;
  }
  return kNoRank;
}

}  // namespace trefoil
