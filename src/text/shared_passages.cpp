#include "text/shared_passages.h"

#include <algorithm>
#include <set>

namespace trefoil {

PassageFinder::PassageFinder(std::vector<int32_t> calibration, size_t row_length)
    : stream_(std::move(calibration)), row_length_(std::max<size_t>(row_length, 1)) {}

void PassageFinder::judge(std::span<const int32_t> ids, SharedPassages* found) {
  const auto count = static_cast<int64_t>(ids.size());
  ++found->documents;
  found->tokens += count;
  if (count < kShortestJudged) {
    ++found->too_short;
    return;
  }
  const size_t length = std::min(ids.size(), static_cast<size_t>(kSharedRun));
  const std::vector<uint64_t>& seen = runs_of(length);
  const int64_t shared = ids_in_shared_runs(ids, length, [&](uint64_t hash) {
    const bool is_shared = std::binary_search(seen.begin(), seen.end(), hash);
    if (is_shared) shared_[length].insert(hash);
    return is_shared;
  });
  found->shared_tokens += shared;
  found->overlapping += shared > 0;
  found->contained += shared == count;
}

int64_t PassageFinder::rows_with_shared_runs() const {
  std::set<size_t> rows;
  for (const auto& [length, hashes] : shared_) {
    for_each_run(stream_, length, [&, run = length, &known = hashes](size_t end, uint64_t hash) {
      if (!known.contains(hash)) return;
      for (size_t row = (end - run) / row_length_; row <= (end - 1) / row_length_; ++row) rows.insert(row);
    });
  }
  return static_cast<int64_t>(rows.size());
}

const std::vector<uint64_t>& PassageFinder::runs_of(size_t length) {
  std::vector<uint64_t>& hashes = runs_[length];
  if (hashes.empty() && stream_.size() >= length) {
    hashes.reserve(stream_.size());
    for_each_run(stream_, length, [&](size_t /*end*/, uint64_t hash) { hashes.push_back(hash); });
    std::sort(hashes.begin(), hashes.end());
  }
  return hashes;
}

}  // namespace trefoil
