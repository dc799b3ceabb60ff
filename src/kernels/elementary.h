// exp, sigmoid and tanh of our own: the same bits on every machine, whatever its C library, and loops a compiler can
// vectorise (no branches, no calls).
//
// Computed in double with a relative error below 3e-12 and rounded to f32 once, so a result is the correctly rounded
// one except where the true value lies within 3e-12 of a rounding boundary. NaN stays NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace trefoil {

// exp(x) for |x| <= 700: x = n ln 2 + r, |r| <= 0.347, then 2^n times the Taylor series of e^r up to r^10.
inline double exp_core(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2 = 0.6931471805599453;
  constexpr double kRoundToInteger = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  const double shifted = x * kLog2E + kRoundToInteger;
  const double r = x - (shifted - kRoundToInteger) * kLn2;
  double p = 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // 2^n: n sits in the low mantissa bits of `shifted`; the exponent field of a double is biased by 1023.
  return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

// Limits beyond which an f32 result is 0, 1 or infinity anyway. A NaN fails both comparisons and passes through.
inline double clamp_exponent(double x) {
  const double low = x < -200.0 ? -200.0 : x;
  return low > 200.0 ? 200.0 : low;
}

inline double sigmoid_core(double x) {
  return 1.0 / (1.0 + exp_core(clamp_exponent(-x)));
}

inline double tanh_core(double x) {
  const double a = std::fabs(x);
  const double e = exp_core(clamp_exponent(-2.0 * a));
  // Near zero 1 - e cancels: there the series x - x^3/3 + 2x^5/15 is exact to 1e-12.
  const double near_zero = a * (1.0 - a * a * (1.0 / 3 - a * a * (2.0 / 15)));
  return std::copysign(a < 0.015 ? near_zero : (1.0 - e) / (1.0 + e), x);
}

inline float exp_f32(float x) {
  return static_cast<float>(exp_core(clamp_exponent(x)));
}
inline float sigmoid_f32(float x) {
  return static_cast<float>(sigmoid_core(x));
}
inline float silu_f32(float x) {
  return static_cast<float>(x * sigmoid_core(x));
}

}  // namespace trefoil
