// SplitMix64: a counter through a mixing function (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
// generators"). The same numbers on every machine and for ever: what a seed gives depends on them.
#pragma once

#include <cstdint>

namespace trefoil {

class SplitMix64 {
 public:
  // What a number adds to the state, so that state + n * kStep skips n numbers: 2^64 / golden ratio.
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15;

  constexpr explicit SplitMix64(uint64_t state) : state_(state) {}

  constexpr uint64_t next() {
    uint64_t z = state_ += kStep;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // In [0, 1), 53 bits.
  constexpr double next_uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace trefoil
