#include <gtest/gtest.h>

#include <limits>

#include "report/html_page.h"
#include "report/svg_chart.h"
#include "support/expect_html.h"

namespace trefoil {
namespace {

TEST(Html, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(escape_html("a\xFF z"), "a\xEF\xBF\xBD z");
  EXPECT_EQ(escape_html("\xE2\x82\xAC\xC3"), "\xE2\x82\xAC\xEF\xBF\xBD");
  EXPECT_EQ(escape_html(std::string("\0\x1B", 2)), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(escape_html("\xED\xA0\x80").find("\xED"), std::string::npos);  // a surrogate
}

TEST(SvgChart, ValuesThatCannotBeDrawnAreLeftOut) {
  LineChart chart;
  chart.y.log = true;
  chart.series = {{"a", "s0", false, true, {{0, std::numeric_limits<double>::quiet_NaN(), 0}, {1, 0, 0}, {2, -1, 0}}}};
  EXPECT_EQ(render(chart), "");
  chart.series[0].points.push_back({3, 5, std::numeric_limits<double>::quiet_NaN()});
  const std::string one = render(chart);
  EXPECT_NE(one.find("<circle"), std::string::npos);
  EXPECT_EQ(one.find("nan"), std::string::npos);
}

TEST(SvgChart, AnAxisOfWholeNumbersMarksNoHalves) {
  LineChart chart;
  chart.series = {{"a", "s0", false, true, {{7, 1, 0}, {8, 2, 0}}}};
  EXPECT_NE(render(chart).find(">7.5<"), std::string::npos);
  chart.x.integers = true;
  const std::string whole = render(chart);
  EXPECT_NE(whole.find(">7<"), std::string::npos);
  EXPECT_EQ(whole.find(">7."), std::string::npos);
}

TEST(Html, PagesAndTablesEscapeWhatComesIn) {
  const ReportTable table{"<t>", "<n>", {"<h>", "b"}, {{"<c>", "&"}}};
  const std::string page = html_page("<i>", "<j>", "<k>", html_section(table) + html_folded(table));
  expect_balanced(page);
  expect_self_contained(page);
  for (const char* bad : {"<t>", "<n>", "<h>", "<c>", "<i>", "<j>", "<k>"})
    EXPECT_EQ(page.find(bad), std::string::npos) << bad;
  EXPECT_NE(page.find("<td>&amp;</td>"), std::string::npos);
}

TEST(Html, WhatIsEmptyLeavesNothing) {
  EXPECT_EQ(html_section(ReportTable{"title", "note", {"a"}, {}}, "figures"), "");
  EXPECT_EQ(html_folded(ReportTable{}), "");
  EXPECT_EQ(html_figure("title", "text", ""), "");
  EXPECT_EQ(html_pair("a", ""), "a");
}

TEST(ReportTable, NumbersHaveFourDigits) {
  EXPECT_EQ(format_number(0.0512349), "0.05123");
  EXPECT_EQ(format_number(123.456), "123.5");
  EXPECT_EQ(format_number(0.00001234), "1.23e-05");
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(std::numeric_limits<double>::quiet_NaN()), "-");
}

}  // namespace
}  // namespace trefoil
