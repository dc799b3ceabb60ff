// A table of a report, as cells of plain text: every form of the report shows the same ones.
#pragma once

#include <string>
#include <vector>

namespace trefoil {

struct ReportTable {
  std::string title;
  std::string note;  // one or two sentences, may be empty
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as header; the first column is text, the rest numbers

  bool empty() const { return rows.empty(); }
};

// Digits after the point with which a number of the size of `unit` shows so many significant ones; 0 to 9.
int decimals_for(double unit, int significant);

// Four significant digits, "1.2e-06" below 1e-4, "0"; "-" for NaN.
std::string format_number(double value);

}  // namespace trefoil
