// The policy on traces, through the very class that the cache uses: what docs/design/0009 reports.
#include "stream/residency_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <numeric>
#include <unordered_map>

#include "base/splitmix64.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A model in the small: per token each layer chooses `chosen` of its experts, by weights that differ by layer.
struct Trace {
  int64_t layers = 8;
  int64_t experts = 224;  // a quarter of Kimi-K3's, and of its choices
  int64_t chosen = 4;
  double sigma = 0;  // of the log of an expert's weight
  int64_t keys() const { return layers * experts; }
};

double gaussian(SplitMix64& random) {
  return std::sqrt(-2 * std::log(1 - random.next_uniform())) * std::cos(2 * M_PI * random.next_uniform());
}

class Router {
 public:
  explicit Router(const Trace& trace, uint64_t seed) : trace_(trace), random_(seed) { draw_weights(); }

  void draw_weights() {
    weight_.resize(static_cast<size_t>(trace_.keys()));
    for (double& weight : weight_) weight = trace_.sigma * gaussian(random_);
  }
  // Without replacement, by the largest of weight plus Gumbel noise.
  std::vector<int64_t> choose(int64_t layer) {
    std::vector<std::pair<double, int64_t>> score;
    for (int64_t e = 0; e < trace_.experts; ++e) {
      const int64_t key = layer * trace_.experts + e;
      const double noise = -std::log(-std::log(0.5 * 0x1p-53 + random_.next_uniform() * (1 - 0x1p-53)));
      score.emplace_back(weight_[static_cast<size_t>(key)] + noise, key);
    }
    std::partial_sort(score.begin(), score.begin() + trace_.chosen, score.end(), std::greater<>());
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < trace_.chosen; ++i) keys.push_back(score[static_cast<size_t>(i)].second);
    std::sort(keys.begin(), keys.end());
    return keys;
  }
  // The share of accesses that the `capacity` heaviest experts get: no fixed set can do better.
  double best_fixed(int64_t capacity, int64_t tokens) {
    std::vector<int64_t> uses(static_cast<size_t>(trace_.keys()));
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t layer = 0; layer < trace_.layers; ++layer) {
        for (const int64_t key : choose(layer)) ++uses[static_cast<size_t>(key)];
      }
    }
    std::sort(uses.begin(), uses.end(), std::greater<>());
    const double all = static_cast<double>(std::accumulate(uses.begin(), uses.end(), int64_t{0}));
    return static_cast<double>(std::accumulate(uses.begin(), uses.begin() + capacity, int64_t{0})) / all;
  }

 private:
  Trace trace_;
  SplitMix64 random_;
  std::vector<double> weight_;
};

class Lru {
 public:
  explicit Lru(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {}
  int64_t use(std::span<const int64_t> keys) {
    int64_t hits = 0;
    for (const int64_t key : keys) {
      const auto found = place_.find(key);
      if (found != place_.end()) {
        ++hits;
        order_.erase(found->second);
      } else if (order_.size() == capacity_) {
        place_.erase(order_.back());
        order_.pop_back();
      }
      order_.push_front(key);
      place_[key] = order_.begin();
    }
    return hits;
  }

 private:
  size_t capacity_;
  std::list<int64_t> order_;
  std::unordered_map<int64_t, std::list<int64_t>::iterator> place_;
};

int64_t hits_and_use(ResidencyPolicy& policy, std::span<const int64_t> keys) {
  const int64_t hits = std::count_if(keys.begin(), keys.end(), [&](int64_t key) { return policy.is_resident(key); });
  policy.use(keys);
  return hits;
}

struct Rates {
  double policy = 0;
  double lru = 0;
};

// Hit rates over the last half of `tokens`.
Rates decode(const Trace& trace, int64_t capacity, int64_t tokens, double half_life = 256) {
  ResidencyPolicy policy(trace.keys(), trace.experts, capacity, half_life);
  Lru lru(capacity);
  Router router(trace, 1);
  Rates hits;
  for (int64_t token = 0; token < tokens; ++token) {
    const double counts = token >= tokens / 2 ? 1 : 0;
    for (int64_t layer = 0; layer < trace.layers; ++layer) {
      const std::vector<int64_t> keys = router.choose(layer);
      hits.policy += counts * static_cast<double>(hits_and_use(policy, keys));
      hits.lru += counts * static_cast<double>(lru.use(keys));
    }
  }
  const auto accesses = static_cast<double>((tokens - tokens / 2) * trace.layers * trace.chosen);
  return {hits.policy / accesses, hits.lru / accesses};
}

TEST(ResidencyPolicy, KeepsTheOftenUsedAndLetsTheOthersPass) {
  ResidencyPolicy policy(8, 8, 2, 1e6);
  EXPECT_THAT(policy.use(std::vector<int64_t>{1, 2}), IsEmpty());
  EXPECT_THAT(policy.use(std::vector<int64_t>{3}), IsEmpty());  // seen once: no better
  EXPECT_FALSE(policy.is_resident(3));
  policy.use(std::vector<int64_t>{1});
  EXPECT_THAT(policy.use(std::vector<int64_t>{3}), ElementsAre(2));  // once before, and later than 2
  EXPECT_TRUE(policy.is_resident(1));
  EXPECT_TRUE(policy.is_resident(3));
}

TEST(ResidencyPolicy, NeverReplacesAnExpertOfTheSameStep) {
  ResidencyPolicy policy(8, 8, 1, 1e6);
  policy.use(std::vector<int64_t>{5});
  for (int i = 0; i < 3; ++i) policy.use(std::vector<int64_t>{0});
  EXPECT_TRUE(policy.is_resident(0));
  for (int i = 0; i < 9; ++i) policy.use(std::vector<int64_t>{0, 5});
  EXPECT_TRUE(policy.is_resident(0));
}

TEST(ResidencyPolicy, OldUsesFadeAndWeightsDoNotOverflow) {
  ResidencyPolicy policy(4, 4, 1, 2);
  for (int i = 0; i < 2000; ++i) policy.use(std::vector<int64_t>{0});
  EXPECT_TRUE(policy.is_resident(0));
  for (int i = 0; i < 8; ++i) policy.use(std::vector<int64_t>{1});
  EXPECT_TRUE(policy.is_resident(1));
}

TEST(ResidencyPolicy, LowersItsCapacityByTheLowestScores) {
  ResidencyPolicy policy(8, 8, 3, 1e6);
  policy.use(std::vector<int64_t>{0, 1, 2});
  policy.use(std::vector<int64_t>{1});
  policy.set_capacity(1);
  EXPECT_EQ(policy.drop_lowest([](int64_t key) { return key != 0; }), 2);
  EXPECT_EQ(policy.drop_lowest([](int64_t) { return true; }), 0);
  EXPECT_TRUE(policy.is_resident(1));
}

// Prefill: every layer uses all of its experts, again and again. The most recently used ones are of no use.
TEST(ResidencyPolicy, AnEndlessScanHitsTheShareThatFits) {
  const Trace trace;
  for (const double share : {0.1, 0.5, 0.9}) {
    const auto capacity = static_cast<int64_t>(share * static_cast<double>(trace.keys()));
    ResidencyPolicy policy(trace.keys(), trace.experts, capacity);
    Lru lru(capacity);
    int64_t hits = 0, lru_hits = 0;
    constexpr int kScans = 20;
    for (int scan = 0; scan <= kScans; ++scan) {
      for (int64_t layer = 0; layer < trace.layers; ++layer) {
        std::vector<int64_t> keys(static_cast<size_t>(trace.experts));
        std::iota(keys.begin(), keys.end(), layer * trace.experts);
        const int64_t step_hits = hits_and_use(policy, keys);
        lru_hits += lru.use(keys);
        if (scan > 0) hits += step_hits;
      }
    }
    EXPECT_EQ(hits, kScans * capacity);
    EXPECT_EQ(lru_hits, 0);
  }
}

// What is kept lies behind the present layer, with as many uses: only the present use makes others look better.
TEST(ResidencyPolicy, AScanHitsTheShareThatFitsWhereverItBegan) {
  const Trace trace;
  const int64_t capacity = trace.keys() / 4;
  ResidencyPolicy policy(trace.keys(), trace.experts, 0);
  int64_t hits = 0;
  for (int scan = 0; scan < 5; ++scan) {
    for (int64_t layer = 0; layer < trace.layers; ++layer) {
      if (scan == 1 && layer == trace.layers / 2) policy.set_capacity(capacity);
      std::vector<int64_t> keys(static_cast<size_t>(trace.experts));
      std::iota(keys.begin(), keys.end(), layer * trace.experts);
      const int64_t step_hits = hits_and_use(policy, keys);
      if (scan > 1) hits += step_hits;
    }
  }
  EXPECT_EQ(hits, 3 * capacity);
}

// A text that repeats itself: the same tokens in turn.
TEST(ResidencyPolicy, ACycleOfTokensHitsTheShareThatFits) {
  const Trace trace;
  Router router(trace, 7);
  std::vector<std::vector<int64_t>> steps;
  for (int64_t token = 0; token < 50; ++token) {
    for (int64_t layer = 0; layer < trace.layers; ++layer) steps.push_back(router.choose(layer));
  }
  std::set<int64_t> distinct;
  for (const auto& keys : steps) distinct.insert(keys.begin(), keys.end());
  const auto capacity = static_cast<int64_t>(distinct.size()) / 2;
  ResidencyPolicy policy(trace.keys(), trace.experts, capacity);
  Lru lru(capacity);
  Rates hits;
  double accesses = 0;
  for (int cycle = 0; cycle < 20; ++cycle) {
    for (const auto& keys : steps) {
      const int64_t step_hits = hits_and_use(policy, keys), lru_hits = lru.use(keys);
      if (cycle == 0) continue;
      hits.policy += static_cast<double>(step_hits);
      hits.lru += static_cast<double>(lru_hits);
      accesses += static_cast<double>(keys.size());
    }
  }
  RecordProperty("policy", std::to_string(hits.policy / accesses));
  RecordProperty("lru", std::to_string(hits.lru / accesses));
  EXPECT_GE(hits.policy, 0.5 * accesses);
  EXPECT_GT(hits.policy, hits.lru);
}

TEST(ResidencyPolicy, FlatRoutingHitsTheShareThatFits) {
  const Trace trace;
  for (const double share : {0.01, 0.1, 0.5}) {  // one token uses 1.8 % of all experts
    const auto capacity = static_cast<int64_t>(share * static_cast<double>(trace.keys()));
    const Rates rates = decode(trace, capacity, 2000);
    RecordProperty("flat_" + std::to_string(share), std::to_string(rates.policy) + " lru " + std::to_string(rates.lru));
    EXPECT_NEAR(rates.policy, share, 0.1 * share + 0.003) << share;
    if (share == 0.01) {
      EXPECT_EQ(rates.lru, 0);  // below one token's set nothing is still there
    }
  }
}

TEST(ResidencyPolicy, UnevenRoutingComesNearTheBestFixedSet) {
  const Trace trace{.sigma = 0.9};
  for (const double share : {0.01, 0.1, 0.5}) {
    const auto capacity = static_cast<int64_t>(share * static_cast<double>(trace.keys()));
    const Rates rates = decode(trace, capacity, 4000);
    const double best = Router(trace, 1).best_fixed(capacity, 2000);
    RecordProperty("uneven_" + std::to_string(share), std::to_string(rates.policy) + " lru " +
                                                          std::to_string(rates.lru) + " best " + std::to_string(best));
    EXPECT_GT(rates.policy, 0.85 * best) << share;
    EXPECT_GT(rates.policy, rates.lru) << share;
  }
}

}  // namespace
}  // namespace trefoil
