// For tests: reproducible random vectors. The seed is in the test.
#pragma once

#include <cstdint>
#include <vector>

#include "base/splitmix64.h"

namespace trefoil::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}

  uint64_t bits() { return random_.next(); }
  // In [low, high).
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(bits() >> 40) * 0x1p-24f; }
  std::vector<float> vector(int64_t size, float low = -1, float high = 1) {
    std::vector<float> values(static_cast<size_t>(size));
    for (float& value : values) value = uniform(low, high);
    return values;
  }

 private:
  SplitMix64 random_;
};

}  // namespace trefoil::testing
