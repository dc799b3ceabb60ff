#include <algorithm>

#include "eval/report.h"
#include "eval/report_tables.h"

namespace trefoil {
namespace {

constexpr size_t kWidestCell = 72;

// Columns on a terminal: code points, which for the text here are columns.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// A label comes from the command line: nothing in it may move the cursor.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return left ? text + space : space + text;
}

std::string text_table(const ReportTable& table) {
  if (table.empty()) return "";
  std::vector<size_t> widths;
  for (const std::string& name : table.header) widths.push_back(width_of(name));
  for (const std::vector<std::string>& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], std::min(kWidestCell, width_of(row[i])));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (size_t i = 0; i < cells.size(); ++i)
      out += (i > 0 ? "  " : "") + padded(printable(cells[i]), widths[i], i == 0);
    return out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
  };
  std::string out = table.title + "\n" + line(table.header);
  for (const std::vector<std::string>& row : table.rows) out += line(row);
  return out + "\n";
}

// What eval() found out about each candidate's calibration: a KLD on text that was calibrated on flatters.
std::string held_out_lines(const EvalRecord& record) {
  size_t width = 0;
  for (const JudgedModel& model : record.models) width = std::max(width, width_of(model.label));
  std::string lines;
  for (const JudgedModel& model : record.models) {
    if (model.held_out.empty()) continue;
    lines += padded(printable(model.label), width, true) + "  " + printable(model.held_out) + "\n";
  }
  return lines.empty() ? lines : "Was the text calibrated on?\n" + lines + "\n";
}

}  // namespace

std::string report_text(const EvalRecord& record) {
  std::string out;
  if (record.command != "probe") {
    for (const ReportTable& table : {headline_table(record), pair_table(record), noise_table(record)}) {
      out += text_table(table);
    }
  }
  for (const ReportTable& table : {weight_table(record), isolated_table(record), stream_table(record)}) {
    out += text_table(table);
  }
  return out + held_out_lines(record) + text_table(check_table(record));
}

}  // namespace trefoil
