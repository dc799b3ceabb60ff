#include "plan/text_table.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace trefoil {

void TextTable::row(std::vector<std::string> cells) {
  TREFOIL_CHECK(!cells.empty() && cells.size() <= alignment_.size());
  cells.resize(alignment_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  std::vector<size_t> widths(alignment_.size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const size_t total = std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
  std::string text;
  for (const auto& row : rows_) {
    std::string line = row.empty() ? std::string(total, '-') : "";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "  ";
      line += alignment_[i] == 'r' ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += "  " + line + "\n";
  }
  return text;
}

}  // namespace trefoil
