#include "bench/paired.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace trefoil {

double quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  const double at = fraction * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

BenchRow paired(int rounds, const std::function<double()>& ceiling, const std::function<double()>& measured) {
  std::vector<double> rates, ceilings, ratios;
  measured();  // warms up: pages, clocks
  for (int i = 0; i < rounds; ++i) {
    const double before = ceiling();
    rates.push_back(measured());
    ceilings.push_back((before + ceiling()) / 2);
    ratios.push_back(rates.back() / ceilings.back());
  }
  BenchRow row;
  row.rate = quantile(rates, 0.5);
  row.ceiling = quantile(ceilings, 0.5);
  row.ratio = quantile(ratios, 0.5);
  row.ratio_low = quantile(ratios, 0.25);
  row.ratio_high = quantile(ratios, 0.75);
  return row;
}

std::string format_bench(const std::vector<BenchRow>& rows) {
  std::string text = fmt::format("{:<40} {:>7} {:>9} {:>9} {:<8} {:>7} {:>13} {:>7}\n", "what", "threads", "rate",
                                 "ceiling", "unit", "ratio", "quartiles", "Gw/s");
  for (const BenchRow& row : rows) {
    fmt::format_to(std::back_inserter(text),
                   "{:<40} {:>7} {:>9.1f} {:>9.1f} {:<8} {:>6.1f}% {:>5.1f} - {:>4.1f}% {:>7}\n", row.what, row.threads,
                   row.rate / 1e9, row.ceiling / 1e9, row.unit, 100 * row.ratio, 100 * row.ratio_low,
                   100 * row.ratio_high, row.weights_per_s > 0 ? fmt::format("{:.1f}", row.weights_per_s / 1e9) : "");
  }
  return text;
}

}  // namespace trefoil
