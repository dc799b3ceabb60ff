#include "report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trefoil {
namespace {

constexpr double kDotWidth = 960, kLeft = 76, kRight = 18, kTop = 14, kPlotHeight = 250, kBelow = 52;
constexpr double kLegendLine = 20;

// Length of the UTF-8 sequence at the front of `text`, 0 when it is not valid.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

// Values to pixels along one axis.
struct Scale {
  double low = 0, high = 1;  // in axis units: log10 of the value on a log axis
  double from = 0, to = 1;   // pixels
  bool log = false;

  double unit(double value) const { return log ? std::log10(value) : value; }
  double pixel(double value) const { return from + (unit(value) - low) / (high - low) * (to - from); }
  bool can_draw(double value) const { return std::isfinite(value) && (!log || value > 0); }
};

struct Tick {
  double value;
  std::string label;
};

std::string tick_label(double value) {
  if (value == 0) return "0";
  const double size = std::fabs(value);
  if (size < 1e-3 || size >= 1e5) return fmt::format("{:.0e}", value);
  return fmt::format("{:g}", value);
}

std::vector<Tick> linear_ticks(const Scale& scale, bool integers = false) {
  const double rough = (scale.high - scale.low) / 5;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double nice : {1.0, 2.0, 5.0}) {
    if (nice * power >= rough) {
      step = nice * power;
      break;
    }
  }
  if (integers) step = std::max(step, 1.0);
  std::vector<Tick> ticks;
  for (double k = std::ceil(scale.low / step - 1e-9); k * step <= scale.high + 1e-9 * step; k += 1) {
    ticks.push_back({k * step, tick_label(k * step)});
  }
  return ticks;
}

std::vector<Tick> log_ticks(const Scale& scale) {
  std::vector<Tick> ticks;
  const int first = static_cast<int>(std::ceil(scale.low - 1e-9)),
            last = static_cast<int>(std::floor(scale.high + 1e-9));
  const int every = std::max(1, (last - first) / 8 + 1);
  for (int k = first; k <= last; k += every) {
    const double value = std::pow(10.0, k);
    ticks.push_back({value, k < -3 || k > 4 ? fmt::format("1e{}", k) : tick_label(value)});
  }
  if (ticks.size() < 2) {  // less than two powers of ten: mark 1, 2 and 5 as well
    ticks.clear();
    for (int k = first - 1; k <= last + 1; ++k) {
      for (const int digit : {1, 2, 5}) {
        const double value = digit * std::pow(10.0, k);
        if (std::log10(value) >= scale.low - 1e-9 && std::log10(value) <= scale.high + 1e-9) {
          ticks.push_back({value, tick_label(value)});
        }
      }
    }
  }
  return ticks;
}

std::vector<Tick> axis_ticks(const ChartAxis& axis, const Scale& scale) {
  if (axis.labels.empty()) return scale.log ? log_ticks(scale) : linear_ticks(scale, axis.integers);
  std::vector<Tick> ticks;
  const size_t every = axis.labels.size() / 16 + 1;
  for (size_t i = 0; i < axis.labels.size(); i += every) ticks.push_back({static_cast<double>(i), axis.labels[i]});
  return ticks;
}

// Grows a range over values; empty until the first one.
struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

Scale make_scale(const ChartAxis& axis, Range range, double from, double to) {
  if (axis.from_zero && !axis.log) range.add(0);
  double room = 0.04 * (range.high - range.low);
  if (room == 0) room = range.high == 0 ? 1 : axis.log ? 0.3 : 0.1 * std::fabs(range.high);
  const double low = axis.from_zero && !axis.log && range.low == 0 ? 0 : range.low - room;
  return {low, range.high + room, from, to, axis.log};
}

bool drawable(const ChartPoint& point, const LineChart& chart) {
  return std::isfinite(point.x) && std::isfinite(point.y) && (!chart.x.log || point.x > 0) &&
         (!chart.y.log || point.y > 0);
}

bool has_bar(const ChartPoint& point) {
  return std::isfinite(point.error) && point.error > 0;
}

struct Ranges {
  Range x, y;
};

Ranges ranges_of(const LineChart& chart) {
  Ranges ranges;
  const auto unit = [](const ChartAxis& axis, double value) { return axis.log ? std::log10(value) : value; };
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (!drawable(point, chart)) continue;
      ranges.x.add(unit(chart.x, point.x));
      ranges.y.add(unit(chart.y, point.y));
      if (!has_bar(point)) continue;
      ranges.y.add(unit(chart.y, point.y + point.error));
      if (!chart.y.log || point.y - point.error > 0) ranges.y.add(unit(chart.y, point.y - point.error));
    }
  }
  if (!chart.x.labels.empty() && !ranges.x.empty()) {
    ranges.x.add(0);
    ranges.x.add(static_cast<double>(chart.x.labels.size() - 1));
  }
  return ranges;
}

std::string line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  return fmt::format(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", css_class, x1, y1, x2,
                     y2);
}

std::string text_at(double x, double y, std::string_view css_class, std::string_view anchor, std::string_view text) {
  return fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", css_class, x, y, anchor,
                     escape_html(text));
}

std::string draw_axes(const LineChart& chart, const Scale& x, const Scale& y) {
  std::string svg;
  for (const Tick& tick : axis_ticks(chart.y, y)) {
    const double at = y.pixel(tick.value);
    svg += line(x.from, at, x.to, at, "grid") + text_at(x.from - 8, at + 4, "tick", "end", tick.label);
  }
  for (const Tick& tick : axis_ticks(chart.x, x)) {
    const double at = x.pixel(tick.value);
    svg += line(at, y.from, at, y.from + 5, "axis") + text_at(at, y.from + 19, "tick", "middle", tick.label);
  }
  svg += line(x.from, y.from, x.to, y.from, "axis");
  svg += text_at((x.from + x.to) / 2, y.from + 40, "name", "middle", chart.x.title);
  svg += fmt::format(
      R"svg(<text class="name" text-anchor="middle" transform="translate(16 {:.1f}) rotate(-90)">{}</text>)svg",
      (y.from + y.to) / 2, escape_html(chart.y.title));
  return svg;
}

std::string draw_point(const ChartPoint& point, const ChartSeries& series, const Scale& x, const Scale& y) {
  const double px = x.pixel(point.x), py = y.pixel(point.y);
  std::string svg;
  if (has_bar(point)) {
    const double top = y.pixel(point.y + point.error);
    const double bottom = y.can_draw(point.y - point.error) ? y.pixel(point.y - point.error) : y.from;
    svg += line(px, top, px, bottom, "bar " + series.css_class);
    svg += line(px - 4, top, px + 4, top, "bar " + series.css_class);
    svg += line(px - 4, bottom, px + 4, bottom, "bar " + series.css_class);
  }
  if (!series.dots) return svg;
  return svg +
         fmt::format(R"(<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3.5"><title>{}: {:.4g}</title></circle>)",
                     series.css_class, px, py, escape_html(series.label), point.y);
}

std::string draw_series(const ChartSeries& series, const LineChart& chart, const Scale& x, const Scale& y) {
  std::string path, marks;
  for (const ChartPoint& point : series.points) {
    if (!drawable(point, chart)) continue;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x.pixel(point.x), y.pixel(point.y));
    marks += draw_point(point, series, x, y);
  }
  if (path.empty()) return "";
  if (!chart.connect) return marks;
  return fmt::format(R"(<path class="line {}{}" d="{}"/>)", series.css_class, series.dashed ? " dashed" : "", path) +
         marks;
}

// Entries from left to right, wrapped; returns its height through `height`.
std::string draw_legend(const LineChart& chart, double* height) {
  std::string svg;
  double x = kLeft, y = kTop + 4;
  for (const ChartSeries& series : chart.series) {
    const double width = 40 + 7.2 * static_cast<double>(series.label.size());
    if (x > kLeft && x + width > chart.width - kRight) x = kLeft, y += kLegendLine;
    svg += fmt::format(R"(<path class="line {}{}" d="M{:.1f} {:.1f} h22"/>)", series.css_class,
                       series.dashed ? " dashed" : "", x, y - 4);
    svg += text_at(x + 28, y, "tick", "start", series.label);
    x += width + 12;
  }
  *height = y + 10;
  return svg;
}

std::string open_svg(double width, double height, const std::string& title) {
  return fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)", width, height,
                     escape_html(title));
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0 || (length == 1 && ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F))) {
      out += "\xEF\xBF\xBD";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string render(const LineChart& chart) {
  const Ranges ranges = ranges_of(chart);
  if (ranges.x.empty() || ranges.y.empty()) return "";
  double top = kTop;
  const std::string legend = chart.series.size() > 1 ? draw_legend(chart, &top) : "";
  const double bottom = top + kPlotHeight;
  const Scale x = make_scale({.title = "", .log = chart.x.log, .from_zero = false, .labels = {}}, ranges.x, kLeft,
                             chart.width - kRight);
  const Scale y = make_scale(chart.y, ranges.y, bottom, top);
  std::string svg = open_svg(chart.width, bottom + kBelow, chart.title) + legend + draw_axes(chart, x, y);
  for (const ChartSeries& series : chart.series) svg += draw_series(series, chart, x, y);
  return svg + "</svg>";
}

std::string render(const DotChart& chart) {
  constexpr double kRow = 30, kNames = 190, kValues = 150;
  Range range;
  for (const DotChart::Entry& entry : chart.entries) {
    if (!std::isfinite(entry.value)) continue;
    range.add(entry.value);
    if (std::isfinite(entry.error)) range.add(entry.value + entry.error), range.add(entry.value - entry.error);
  }
  if (range.empty()) return "";
  range.low = std::max(range.low, 0.0);
  const Scale x =
      make_scale({.title = "", .log = false, .from_zero = true, .labels = {}}, range, kNames, kDotWidth - kValues);
  const double bottom = kTop + kRow * static_cast<double>(chart.entries.size());
  std::string svg = open_svg(kDotWidth, bottom + kBelow, chart.title);
  for (const Tick& tick : linear_ticks(x)) {
    const double at = x.pixel(tick.value);
    svg += line(at, kTop, at, bottom, "grid") + text_at(at, bottom + 17, "tick", "middle", tick.label);
  }
  svg += text_at((x.from + x.to) / 2, bottom + 38, "name", "middle", chart.axis_title);
  double y = kTop + kRow / 2;
  for (const DotChart::Entry& entry : chart.entries) {
    svg += text_at(kNames - 12, y + 4, "label", "end", entry.label);
    if (std::isfinite(entry.value)) {
      const double at = x.pixel(entry.value);
      svg += line(x.pixel(0), y, at, y, "stem " + entry.css_class);
      if (std::isfinite(entry.error) && entry.error > 0) {
        svg += line(x.pixel(std::max(0.0, entry.value - entry.error)), y, x.pixel(entry.value + entry.error), y,
                    "bar " + entry.css_class);
      }
      svg += fmt::format(R"(<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="5"/>)", entry.css_class, at, y);
    }
    svg += text_at(kDotWidth - kValues + 12, y + 4, "tick", "start", entry.text);
    y += kRow;
  }
  return svg + "</svg>";
}

}  // namespace trefoil
