#include "base/bytes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace trefoil {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double bytes;
};

constexpr double kKib = 1024.0;
constexpr std::array<Unit, 19> kUnits = {{{"", 1},
                                          {"b", 1},
                                          {"k", kKib},
                                          {"m", kKib* kKib},
                                          {"g", kKib* kKib* kKib},
                                          {"t", kKib* kKib* kKib* kKib},
                                          {"kb", 1e3},
                                          {"mb", 1e6},
                                          {"gb", 1e9},
                                          {"tb", 1e12},
                                          {"pb", 1e15},
                                          {"kib", kKib},
                                          {"mib", kKib* kKib},
                                          {"gib", kKib* kKib* kKib},
                                          {"tib", kKib* kKib* kKib* kKib},
                                          {"pib", kKib* kKib* kKib* kKib* kKib},
                                          {"kbyte", 1e3},
                                          {"mbyte", 1e6},
                                          {"gbyte", 1e9}}};

std::string scaled(uint64_t bytes, double step, const std::array<const char*, 6>& names) {
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= step && unit + 1 < names.size()) {
    value /= step;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} {}", bytes, names[0]);
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, names[unit]);
}

}  // namespace

uint64_t parse_size(std::string_view text) {
  std::string lower;
  for (const char c : text) {
    if (!std::isspace(static_cast<unsigned char>(c)))
      lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  double number = 0;
  const auto [end, error] = std::from_chars(lower.data(), lower.data() + lower.size(), number);
  const std::string_view suffix(end, static_cast<size_t>(lower.data() + lower.size() - end));
  const auto* unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == suffix; });
  if (error != std::errc() || unit == kUnits.end())
    fail(ErrorCode::kInvalidArgument, "'{}' is not a size (examples: 1500, 512MB, 64GiB, 1.5TB)", text);
  const double bytes = number * unit->bytes;
  if (!(bytes >= 0) || bytes >= 9.2e18) fail(ErrorCode::kInvalidArgument, "size '{}' is out of range", text);
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string format_gb(uint64_t bytes) {
  return scaled(bytes, 1000.0, {"B", "kB", "MB", "GB", "TB", "PB"});
}

std::string format_gib(uint64_t bytes) {
  return scaled(bytes, 1024.0, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string format_duration(double seconds) {
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  constexpr double kMost = 1e15;
  const int64_t whole = seconds > 0 ? std::llround(std::min(seconds, kMost)) : 0;
  if (whole < 2 * kMinute) return fmt::format("{} s", whole);
  const int64_t minutes = (whole + kMinute / 2) / kMinute;
  if (minutes < 60) return fmt::format("{} min", minutes);
  if (minutes < kDay / kMinute) return fmt::format("{} h {} min", minutes / 60, minutes % 60);
  const int64_t hours = (whole + kHour / 2) / kHour;
  return fmt::format("{} d {} h", hours / 24, hours % 24);
}

std::string format_count(uint64_t value) {
  std::string digits = std::to_string(value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

}  // namespace trefoil
