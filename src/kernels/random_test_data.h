// For tests: reproducible random vectors. The seed is in the test; SplitMix64 gives the bits.
#pragma once

#include <cstdint>
#include <vector>

namespace trefoil::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [low, high).
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(bits() >> 40) * 0x1p-24f; }
  std::vector<float> vector(int64_t size, float low = -1, float high = 1) {
    std::vector<float> values(static_cast<size_t>(size));
    for (float& value : values) value = uniform(low, high);
    return values;
  }

 private:
  uint64_t state_;
};

}  // namespace trefoil::testing
