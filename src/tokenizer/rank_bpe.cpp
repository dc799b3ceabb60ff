#include "tokenizer/rank_bpe.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace trefoil {
namespace {

constexpr size_t kShortPiece = 64;  // bytes; where the two ways cost about the same

uint64_t heap_entry(int32_t rank, uint32_t left) {
  return static_cast<uint64_t>(rank) << 32 | left;
}

}  // namespace

void RankBpe::encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
  TREFOIL_CHECK(!piece.empty() && piece.size() < UINT32_MAX);
  if (const int32_t whole = table_.rank(piece); whole != kNoRank) {
    ids->push_back(whole);
  } else if (piece.size() <= kShortPiece) {
    encode_short(piece, scratch, ids);
  } else {
    encode_long(piece, scratch, ids);
  }
}

int32_t RankBpe::byte_pair_rank(std::string_view piece, size_t i) const {
  if (i + 1 >= piece.size()) return kNoRank;
  return table_.pair_rank(static_cast<uint8_t>(piece[i]), static_cast<uint8_t>(piece[i + 1]));
}

void RankBpe::encode_short(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
  auto& parts = scratch->short_parts;
  parts.clear();
  for (size_t i = 0; i < piece.size(); ++i) parts.push_back({static_cast<uint32_t>(i), byte_pair_rank(piece, i)});

  // The bytes of parts[i] up to and without parts[end].
  const auto bytes = [&](size_t i, size_t end) {
    return piece.substr(parts[i].begin,
                        end < parts.size() ? parts[end].begin - parts[i].begin : std::string_view::npos);
  };
  const auto refresh = [&](size_t i) {
    parts[i].merged_rank = i + 1 < parts.size() ? table_.rank(bytes(i, i + 2)) : kNoRank;
  };
  const auto by_rank = [](const auto& a, const auto& b) { return a.merged_rank < b.merged_rank; };
  while (true) {
    const auto lowest = std::min_element(parts.begin(), parts.end(), by_rank);  // the leftmost of equals
    if (lowest->merged_rank == kNoRank) break;
    const auto left = static_cast<size_t>(lowest - parts.begin());
    parts.erase(lowest + 1);
    refresh(left);
    if (left > 0) refresh(left - 1);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const int32_t id = table_.rank(bytes(i, i + 1));
    TREFOIL_CHECK(id != kNoRank);  // single bytes are tokens, and only tokens are merged
    ids->push_back(id);
  }
}

void RankBpe::encode_long(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
  auto& parts = scratch->long_parts;
  auto& heap = scratch->heap;
  const auto end = static_cast<uint32_t>(piece.size());
  parts.clear();
  heap.clear();
  for (uint32_t i = 0; i < end; ++i) {
    parts.push_back({i - 1, i + 1, byte_pair_rank(piece, i)});
    if (parts[i].merged_rank != kNoRank) heap.push_back(heap_entry(parts[i].merged_rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  const auto refresh = [&](uint32_t left) {
    const uint32_t right = parts[left].next;
    parts[left].merged_rank = right == end ? kNoRank : table_.rank(piece.substr(left, parts[right].next - left));
    if (parts[left].merged_rank == kNoRank) return;
    heap.push_back(heap_entry(parts[left].merged_rank, left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t entry = heap.back();
    heap.pop_back();
    const auto left = static_cast<uint32_t>(entry);
    // Stale when the part is gone (its rank is reset below) or now joins with something else.
    if (parts[left].merged_rank != static_cast<int32_t>(entry >> 32)) continue;
    const uint32_t right = parts[left].next;
    parts[right].merged_rank = kNoRank;
    parts[left].next = parts[right].next;
    if (parts[left].next != end) parts[parts[left].next].previous = left;
    refresh(left);
    if (left != 0) refresh(parts[left].previous);
  }
  for (uint32_t i = 0; i != end; i = parts[i].next) {
    const int32_t id = table_.rank(piece.substr(i, parts[i].next - i));
    TREFOIL_CHECK(id != kNoRank);  // as above
    ids->push_back(id);
  }
}

}  // namespace trefoil
