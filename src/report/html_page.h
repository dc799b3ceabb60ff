// What HTML reports are made of: one self-contained page with its style, tables and figures. Nothing in it is loaded from
// anywhere and nothing runs. All text that comes in is escaped here; `body`, `figures` and `svg` are markup made by these
// functions and by svg_chart.h.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "report/report_table.h"

namespace trefoil {

// Drawing width of a figure that shares its line with another.
inline constexpr double kHalfFigure = 520;

// Of the index-th series of any chart: s0, s1, ..., and again from s0.
std::string series_class(size_t index);

// A whole document. `head` is the browser's title, `title` the page's.
std::string html_page(std::string_view head, std::string_view title, std::string_view subtitle,
                      const std::string& body);

enum class Cells { kNumbers, kTexts };  // right-aligned, or left-aligned and wrapped; the first column is always text
std::string html_table(const ReportTable& table, Cells cells = Cells::kNumbers);

// A heading and a sentence.
std::string html_heading(std::string_view title, std::string_view note = {});

// Heading, note, figures, table; "" for an empty table.
std::string html_section(const ReportTable& table, const std::string& figures = {}, Cells cells = Cells::kNumbers);

// A long table, folded; "" for an empty one.
std::string html_folded(const ReportTable& table);

// "" without a drawing.
std::string html_figure(std::string_view title, std::string_view explanation, const std::string& svg);

// Two figures on a line where there is room; either may be "".
std::string html_pair(const std::string& left, const std::string& right);

}  // namespace trefoil
