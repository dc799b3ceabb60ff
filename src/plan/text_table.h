// Tables for a terminal: columns as wide as their longest cell, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace trefoil {

class TextTable {
 public:
  // One character per column: 'l' to the left, 'r' to the right.
  explicit TextTable(std::string alignment) : alignment_(std::move(alignment)) {}

  // Missing cells are empty; more cells than columns are an error of the caller.
  void row(std::vector<std::string> cells);
  // A line of dashes across the table.
  void rule() { rows_.emplace_back(); }
  // Every line indented by two spaces and ended by a newline; no spaces at line ends.
  std::string text() const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;  // an empty one is a rule
};

}  // namespace trefoil
