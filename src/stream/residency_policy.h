// Which experts are worth keeping in RAM. Pure bookkeeping on numbers: the cache and the simulator of the tests run
// this same code. docs/design/0009-experts-from-the-drive.md says why, with hit rates.
//
// Every expert has a score, the number of steps of its layer that used it, older ones counting less (half after
// half_life steps of that layer). The `capacity` experts with the highest scores that were ever read are kept; another
// one takes a place only when the score it had *before* this step exceeds the lowest of the kept ones. In an endless
// scan all scores are equal, so what is kept stays kept and capacity / experts of all accesses hit, where the least
// recently used policy hits none; under uneven routing the often used experts gather.
//
// Deterministic: the same steps give the same residents. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace trefoil {

class ResidencyPolicy {
 public:
  // Keys are [0, num_keys), key / keys_per_layer is the layer.
  ResidencyPolicy(int64_t num_keys, int64_t keys_per_layer, int64_t capacity, double half_life = 256);

  int64_t num_keys() const { return static_cast<int64_t>(score_.size()); }
  int64_t capacity() const { return capacity_; }
  int64_t num_resident() const { return static_cast<int64_t>(by_score_.size()); }
  bool is_resident(int64_t key) const { return resident_[static_cast<size_t>(key)]; }

  // A step of one layer uses these keys, distinct, ascending. Makes residents of those that are worth it and returns
  // what they replaced. A key of the step itself is never replaced.
  std::vector<int64_t> use(std::span<const int64_t> keys);
  // Its bytes are not there after all.
  void forget(int64_t key);
  // The resident with the lowest score that `may_go`, and no resident any more; -1 when there is none.
  int64_t drop_lowest(const std::function<bool(int64_t)>& may_go);
  // Drops nothing by itself: while there are more residents than that, use() admits none.
  void set_capacity(int64_t capacity);

 private:
  double& score(int64_t key) { return score_[static_cast<size_t>(key)]; }
  void admit(int64_t key);
  void remove(int64_t key);
  void rescale();

  int64_t keys_per_layer_;
  int64_t capacity_;
  double growth_;                                  // a use weighs this much more a step later
  std::vector<double> weight_;                     // of a use now, by layer
  std::vector<double> score_;                      // by key
  std::vector<bool> resident_;                     // by key
  std::set<std::pair<double, int64_t>> by_score_;  // of the residents
};

}  // namespace trefoil
