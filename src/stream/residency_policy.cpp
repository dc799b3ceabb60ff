#include "stream/residency_policy.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trefoil {
namespace {

// Weights grow without end instead of scores shrinking at every step; this is when all are brought back. Far from the
// largest double, so that a sum of weights is finite.
constexpr double kLargestWeight = 0x1p400;

}  // namespace

ResidencyPolicy::ResidencyPolicy(int64_t num_keys, int64_t keys_per_layer, int64_t capacity, double half_life)
    : keys_per_layer_(keys_per_layer),
      capacity_(capacity),
      growth_(std::exp2(1 / half_life)),
      weight_(static_cast<size_t>((num_keys + keys_per_layer - 1) / keys_per_layer), 1.0),
      score_(static_cast<size_t>(num_keys)),
      resident_(static_cast<size_t>(num_keys)) {}

std::vector<int64_t> ResidencyPolicy::use(std::span<const int64_t> keys) {
  std::vector<int64_t> replaced;
  if (keys.empty()) return replaced;
  double& weight = weight_[static_cast<size_t>(keys.front() / keys_per_layer_)];
  for (const int64_t key : keys) {
    const double before = score(key);
    const bool was_resident = is_resident(key);
    if (was_resident) remove(key);
    score(key) = before + weight;
    if (was_resident) {
      admit(key);
    } else if (num_resident() < capacity_) {
      admit(key);
    } else if (num_resident() == capacity_ && capacity_ > 0) {
      // The score without this use: with it, whatever was used last would look better than it is.
      const auto lowest = std::find_if(by_score_.begin(), by_score_.end(), [&](const auto& entry) {
        return entry.first >= before || !std::binary_search(keys.begin(), keys.end(), entry.second);
      });
      if (lowest == by_score_.end() || lowest->first >= before) continue;
      replaced.push_back(lowest->second);
      remove(replaced.back());
      admit(key);
    }
  }
  weight *= growth_;
  if (weight > kLargestWeight) rescale();
  return replaced;
}

void ResidencyPolicy::forget(int64_t key) {
  if (is_resident(key)) remove(key);
}

int64_t ResidencyPolicy::drop_lowest(const std::function<bool(int64_t)>& may_go) {
  for (const auto& [_, key] : by_score_) {
    if (!may_go(key)) continue;
    const int64_t dropped = key;
    remove(dropped);
    return dropped;
  }
  return -1;
}

void ResidencyPolicy::set_capacity(int64_t capacity) {
  TREFOIL_CHECK(capacity >= 0);
  capacity_ = capacity;
}

void ResidencyPolicy::admit(int64_t key) {
  by_score_.emplace(score(key), key);
  resident_[static_cast<size_t>(key)] = true;
}

void ResidencyPolicy::remove(int64_t key) {
  by_score_.erase({score(key), key});
  resident_[static_cast<size_t>(key)] = false;
}

// A power of two, so that equal scores stay equal.
void ResidencyPolicy::rescale() {
  for (double& weight : weight_) weight /= kLargestWeight;
  for (double& value : score_) value /= kLargestWeight;
  by_score_.clear();
  for (size_t key = 0; key < score_.size(); ++key) {
    if (resident_[key]) by_score_.emplace(score_[key], static_cast<int64_t>(key));
  }
}

}  // namespace trefoil
