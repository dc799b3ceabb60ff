// A figure beside its ceiling: rounds of (ceiling, measured, ceiling) in one go.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trefoil/bench.h"

namespace trefoil {

// The value that `fraction` of `values` lie below, interpolated; `values` is not empty.
double quantile(std::vector<double> values, double fraction);

// `ceiling` and `measured` return rates in the same unit; the ratio of a round is to the mean of its two ceilings.
BenchRow paired(int rounds, const std::function<double()>& ceiling, const std::function<double()>& measured);

}  // namespace trefoil
