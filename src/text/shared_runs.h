// Whether two texts have passages in common: hashes of every run of so many ids, and what counts as a shared passage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trefoil {

// A run of ids this long in both texts is counted as seen. Shorter ones are common phrases and page headers.
inline constexpr int64_t kSharedRun = 64;

// A polynomial hash over the last `length` ids, updated in O(1).
class RunHash {
 public:
  explicit RunHash(size_t length) {
    for (size_t i = 0; i < length; ++i) out_factor_ *= kMultiplier;
  }
  void push(int32_t in) { hash_ = hash_ * kMultiplier + term(in); }
  void push(int32_t in, int32_t out) { hash_ = hash_ * kMultiplier + term(in) - out_factor_ * term(out); }
  uint64_t value() const { return hash_; }

 private:
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;  // odd: 2^64 / golden ratio
  static uint64_t term(int32_t id) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(id)) + 1) * 0xD6E8FEB86659FD93ull;
  }
  uint64_t hash_ = 0;
  uint64_t out_factor_ = 1;
};

// Calls use(end, hash) for every run of `length` ids, ending before `end`.
template <typename Use>
void for_each_run(std::span<const int32_t> ids, size_t length, const Use& use) {
  RunHash hash(length);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i < length) {
      hash.push(ids[i]);
    } else {
      hash.push(ids[i], ids[i - length]);
    }
    if (i + 1 >= length) use(i + 1, hash.value());
  }
}

// The number of ids that lie in a run of `length` for which is_shared(hash) holds.
template <typename IsShared>
int64_t ids_in_shared_runs(std::span<const int32_t> ids, size_t length, const IsShared& is_shared) {
  int64_t shared = 0;
  size_t counted = 0;  // ids before this are already counted
  for_each_run(ids, length, [&](size_t end, uint64_t hash) {
    if (!is_shared(hash)) return;
    const size_t begin = counted > end - length ? counted : end - length;
    shared += static_cast<int64_t>(end - begin);
    counted = end;
  });
  return shared;
}

}  // namespace trefoil
