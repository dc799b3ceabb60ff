#include "tokenizer/rank_bpe.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace trefoil {
namespace {

uint64_t heap_entry(int32_t rank, uint32_t left) {
  return static_cast<uint64_t>(rank) << 32 | left;
}

}  // namespace

RankBpe::RankBpe(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  ranks_.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    ranks_.emplace(tokens_[id], static_cast<int32_t>(id));
    longest_ = std::max(longest_, tokens_[id].size());
  }
}

int32_t RankBpe::rank(std::string_view bytes) const {
  if (bytes.size() > longest_) return kNoRank;
  const auto found = ranks_.find(bytes);
  return found == ranks_.end() ? kNoRank : found->second;
}

void RankBpe::encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
  TREFOIL_CHECK(!piece.empty() && piece.size() < UINT32_MAX);
  if (const int32_t whole = rank(piece); whole != kNoRank) {
    ids->push_back(whole);
    return;
  }
  merge_all(piece, scratch);
  const auto num_parts = static_cast<uint32_t>(piece.size());
  for (uint32_t i = 0; i != num_parts; i = scratch->parts[i].next) {
    const uint32_t next = scratch->parts[i].next;
    const size_t end = next == num_parts ? piece.size() : scratch->parts[next].begin;
    const int32_t id = rank(piece.substr(scratch->parts[i].begin, end - scratch->parts[i].begin));
    TREFOIL_CHECK(id != kNoRank);  // single bytes are tokens, and only tokens are merged
    ids->push_back(id);
  }
}

int32_t RankBpe::rank_with_next(std::string_view piece, const Scratch& scratch, uint32_t left) const {
  const auto num_parts = static_cast<uint32_t>(piece.size());
  const uint32_t next = scratch.parts[left].next;
  if (next == num_parts) return kNoRank;
  const uint32_t after = scratch.parts[next].next;
  const size_t end = after == num_parts ? piece.size() : scratch.parts[after].begin;
  return rank(piece.substr(scratch.parts[left].begin, end - scratch.parts[left].begin));
}

void RankBpe::merge_all(std::string_view piece, Scratch* scratch) const {
  auto& parts = scratch->parts;
  auto& heap = scratch->heap;
  const auto num_parts = static_cast<uint32_t>(piece.size());
  parts.clear();
  heap.clear();
  for (uint32_t i = 0; i < num_parts; ++i) parts.push_back({i, i - 1, i + 1, kNoRank});
  for (uint32_t i = 0; i < num_parts; ++i) {
    parts[i].merged_rank = rank_with_next(piece, *scratch, i);
    if (parts[i].merged_rank != kNoRank) heap.push_back(heap_entry(parts[i].merged_rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  const auto refresh = [&](uint32_t left) {
    parts[left].merged_rank = rank_with_next(piece, *scratch, left);
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
    if (parts[left].next != num_parts) parts[parts[left].next].previous = left;
    refresh(left);
    if (left != 0) refresh(parts[left].previous);
  }
}

}  // namespace trefoil
