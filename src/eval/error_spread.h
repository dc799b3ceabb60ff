// Collects relative squared errors ||y - y_ref||^2 / ||y_ref||^2 of many vectors and summarises their spread.
#pragma once

#include <span>
#include <vector>

#include "eval/eval_record.h"

namespace trefoil {

class ErrorCollector {
 public:
  // Vectors whose reference is all zero count in the total and not among the ratios.
  void add(std::span<const float> reference, std::span<const float> candidate);
  void add(const ErrorCollector& other);

  ErrorSpread spread() const;
  int64_t count() const { return static_cast<int64_t>(errors_.size()); }

 private:
  std::vector<float> errors_;
  double error_energy_ = 0, energy_ = 0;
};

// The same for blocks [tokens, width], token by token.
void add_rows(std::span<const float> reference, std::span<const float> candidate, int64_t width,
              ErrorCollector* collector);

// Cosine of the angle between two vectors; kNoValue when one is zero.
double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace trefoil
