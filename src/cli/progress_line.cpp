#include "cli/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/terminal_text.h"
#include "trefoil/size.h"

namespace trefoil::cli {
namespace {

struct Part {
  std::string text;
  int weight;  // parts of less weight go first when there is no room
};

std::string rate(double value, std::string_view unit) {
  return value > 0 ? fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, unit) : "";
}

std::string memory(const ProgressRates& rates) {
  if (rates.resident_bytes == 0) return "";
  const std::string now = format_gib(rates.resident_bytes);
  return rates.budget_bytes == 0 ? now : now + " now of " + format_gib(rates.budget_bytes);
}

std::string left(double seconds) {
  return seconds > 0 ? format_duration(seconds) + " left" : "";
}

std::vector<Part> parts_of(const ProgressState& state) {
  if (!state.rates) return {{left(state.stage_left_s), 4}};
  const ProgressRates& rates = *state.rates;
  const std::string share = rates.done_fraction > 0 ? fmt::format("{:.1f} %", 100 * rates.done_fraction) : "";
  return {{rate(rates.tokens_per_s, "tokens/s"), 1},
          {rate(rates.gflop_per_s, "GFLOP/s"), 0},
          {memory(rates), 2},
          {share, 3},
          {left(rates.left_s), 4}};
}

std::string joined(const std::string& head, const std::vector<Part>& parts) {
  std::string line = head;
  for (const Part& part : parts) line += ", " + part.text;
  return line;
}

// Whole characters of UTF-8 only, at most `width` bytes.
std::string cut(std::string text, size_t width) {
  if (text.size() <= width) return text;
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  while (width > 0 && continues(width)) --width;
  text.resize(width);
  return text;
}

std::string head_of(const ProgressState& state) {
  const std::string stage = terminal_text(state.stage);
  if (state.total > 0) return fmt::format("{} {}/{}", stage, state.done, state.total);
  return state.done > 0 ? fmt::format("{} {}", stage, state.done) : stage;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string json_number(double value) {
  return std::isfinite(value) && value > 0 ? fmt::format("{:.6g}", value) : "null";
}

std::string json_bytes(uint64_t bytes) {
  return bytes > 0 ? std::to_string(bytes) : "null";
}

}  // namespace

std::string progress_line(const ProgressState& state, size_t width) {
  const std::string head = head_of(state);
  std::vector<Part> parts = parts_of(state);
  std::erase_if(parts, [](const Part& part) { return part.text.empty(); });
  while (!parts.empty() && joined(head, parts).size() > width) {
    parts.erase(
        std::min_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.weight < b.weight; }));
  }
  return cut(joined(head, parts), width);
}

std::string note_line(std::string_view message) {
  return "note: " + terminal_text(message);
}

std::string progress_json(const ProgressState& state) {
  std::string json = fmt::format(R"({{"event":"progress","stage":{},"done":{},"total":{})", json_string(state.stage),
                                 state.done, state.total);
  if (state.rates) {
    const ProgressRates& rates = *state.rates;
    json += fmt::format(
        R"(,"tokens_per_s":{},"gflop_per_s":{},"resident_bytes":{},"budget_bytes":{},"done_fraction":{},"left_s":{})",
        json_number(rates.tokens_per_s), json_number(rates.gflop_per_s), json_bytes(rates.resident_bytes),
        json_bytes(rates.budget_bytes), json_number(rates.done_fraction), json_number(rates.left_s));
  }
  return json + "}";
}

std::string note_json(std::string_view message) {
  return fmt::format(R"({{"event":"note","message":{}}})", json_string(message));
}

}  // namespace trefoil::cli
