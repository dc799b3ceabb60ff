// Random numbers by counter: number i of a stream is a function of the stream's key and of i alone, so any part of a
// tensor can be made by any thread, in any order.
//
//   key  = first 8 bytes of SHA-256("SEED/NAME")
//   bits = 64 bits of the SplitMix64 finalizer of key + (i / 2 + 1) * 2^64 / golden ratio; number 2j has the low half
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace trefoil {

class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view name);

  // Standard normal numbers first .. first + out.size() - 1. `first` and the size are even.
  //
  // The inverse of the normal distribution, from a table of 2,048 quantiles of |x| with straight lines between them and
  // a second table of as many for its last cell. Against the exact distribution: no cell's probability is off by more
  // than rounding, and |x| ends at 6.2.
  void normal(uint64_t first, std::span<float> out) const;
  // Uniform in [0, 1), multiples of 2^-24. As above.
  void uniform(uint64_t first, std::span<float> out) const;

 private:
  uint64_t key_;
};

// The x above which a standard normal number lies with probability p, 0 < p < 1.
double upper_normal_quantile(double p);

}  // namespace trefoil
