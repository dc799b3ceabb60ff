#include "eval/error_spread.h"

#include <cmath>

#include "eval/estimates.h"

namespace trefoil {

void ErrorCollector::add(std::span<const float> reference, std::span<const float> candidate) {
  double error = 0, energy = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double r = reference[i], difference = static_cast<double>(candidate[i]) - r;
    error += difference * difference;
    energy += r * r;
  }
  error_energy_ += error;
  energy_ += energy;
  if (energy > 0) errors_.push_back(static_cast<float>(error / energy));
}

void ErrorCollector::add(const ErrorCollector& other) {
  errors_.insert(errors_.end(), other.errors_.begin(), other.errors_.end());
  error_energy_ += other.error_energy_;
  energy_ += other.energy_;
}

ErrorSpread ErrorCollector::spread() const {
  ErrorSpread spread;
  spread.count = count();
  if (energy_ > 0) spread.mean = error_energy_ / energy_;
  const std::vector<double> values(errors_.begin(), errors_.end());
  const std::vector<double> levels = {0.5, 0.95, 0.99, 1.0};
  const std::vector<double> found = quantiles(values, levels);
  spread.median = found[0];
  spread.p95 = found[1];
  spread.p99 = found[2];
  spread.max = found[3];
  return spread;
}

void add_rows(std::span<const float> reference, std::span<const float> candidate, int64_t width,
              ErrorCollector* collector) {
  const size_t step = static_cast<size_t>(width);
  for (size_t at = 0; at + step <= reference.size(); at += step) {
    collector->add(reference.subspan(at, step), candidate.subspan(at, step));
  }
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
    ab += static_cast<double>(a[i]) * b[i];
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : kNoValue;
}

}  // namespace trefoil
