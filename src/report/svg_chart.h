// Small charts as inline SVG: lines with error bars, and dots with whiskers by category.
//
// Colours come from CSS classes (s0, s1, ... and noise), so a page decides them once for light and dark. No script, no
// fonts, no links. Text is escaped here. Points that cannot be drawn (NaN, not positive on a log axis) are left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

// Escapes & < > " ' and replaces control characters and bytes that are not UTF-8 by U+FFFD.
std::string escape_html(std::string_view text);

struct ChartPoint {
  double x = 0;
  double y = 0;
  double error = 0;  // half the bar's length; NaN or 0: none
};

struct ChartSeries {
  std::string label;
  std::string css_class;
  bool dashed = false;
  bool dots = true;
  std::vector<ChartPoint> points;
};

struct ChartAxis {
  std::string title;
  bool log = false;
  bool from_zero = false;           // linear axes only
  std::vector<std::string> labels;  // names for x = 0, 1, 2 ...; empty: numbers
  bool integers = false;            // nothing lies between whole numbers: linear axes mark no halves
};

struct LineChart {
  std::string title;
  double width = 960;   // of the drawing; a figure shown at half the page's width takes half
  bool connect = true;  // false: dots only, for x that are names
  ChartAxis x, y;
  std::vector<ChartSeries> series;
};

// "" when nothing can be drawn.
std::string render(const LineChart& chart);

// One horizontal row per entry: a dot at value, a whisker of one error to both sides, the text at the right.
struct DotChart {
  struct Entry {
    std::string label;
    std::string css_class;
    double value = 0;
    double error = 0;
    std::string text;
  };
  std::string title;
  std::string axis_title;
  std::vector<Entry> entries;
};

std::string render(const DotChart& chart);

}  // namespace trefoil
