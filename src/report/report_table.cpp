#include "report/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trefoil {

int decimals_for(double unit, int significant) {
  return std::clamp(significant - 1 - static_cast<int>(std::floor(std::log10(unit))), 0, 9);
}

std::string format_number(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0) return "0";
  const double size = std::fabs(value);
  if (size < 1e-4 || size >= 1e7) return fmt::format("{:.2e}", value);
  return fmt::format("{:.{}f}", value, decimals_for(size, 4));
}

}  // namespace trefoil
