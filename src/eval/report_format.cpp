#include <fmt/format.h>

#include <cmath>

#include "eval/report_tables.h"

namespace trefoil {
namespace {

constexpr double kSmallest = 1e-4;  // below it, powers of ten
const char* const kNothing = "-";

}  // namespace

std::string format_estimate(const Estimate& estimate) {
  const double error = estimate.standard_error;
  if (std::isnan(estimate.value) || std::isnan(error) || error == 0 || !std::isfinite(error)) {
    return format_number(estimate.value) + (error == 0 && !std::isnan(estimate.value) ? " ± 0" : "");
  }
  if (std::fabs(estimate.value) < kSmallest && estimate.value != 0) {
    return fmt::format("{:.2e} ± {:.1e}", estimate.value, error);
  }
  if (error < 1e-8) return format_number(estimate.value) + " ± 0.00000001";
  const int digits = decimals_for(error, 2);
  return fmt::format("{:.{}f} ± {:.{}f}", estimate.value, digits, error, digits);
}

std::string format_percent(const Estimate& share) {
  if (std::isnan(share.value)) return kNothing;
  if (std::isnan(share.standard_error)) return fmt::format("{:.2f}", 100 * share.value);
  return fmt::format("{:.2f} ± {:.2f}", 100 * share.value, 100 * share.standard_error);
}

}  // namespace trefoil
