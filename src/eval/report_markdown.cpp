#include <fmt/format.h>

#include "eval/report.h"
#include "eval/report_tables.h"

namespace trefoil {
namespace {

// A cell may hold anything a label or a file name does; what would end the cell or start markup is escaped.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      out += ' ';
      continue;
    }
    if (c == '|' || c == '\\' || c == '`' || c == '*' || c == '_' || c == '<' || c == '[') out += '\\';
    out += c;
  }
  return out;
}

std::string row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += " " + cell(text) + " |";
  return line + "\n";
}

std::string markdown(const ReportTable& table) {
  if (table.empty()) return "";
  std::string out = "## " + table.title + "\n\n";
  if (!table.note.empty()) out += table.note + "\n\n";
  out += row(table.header) + "|---|";
  for (size_t i = 1; i < table.header.size(); ++i) out += "---:|";
  out += "\n";
  for (const std::vector<std::string>& cells : table.rows) out += row(cells);
  return out + "\n";
}

}  // namespace

std::string report_markdown(const EvalRecord& record) {
  std::string out = fmt::format("# trefoil eval {}\n\n", record.command);
  const bool probe = record.command == "probe";
  if (!probe) out += markdown(headline_table(record));
  if (!probe) out += markdown(pair_table(record));
  for (const auto& table : {check_table(record), tail_table(record), noise_table(record)}) out += markdown(table);
  if (!probe) out += markdown(source_table(record));
  for (const auto& table : {entropy_table(record), weight_table(record), isolated_table(record), decile_table(record),
                            stream_table(record), model_table(record), provenance_table(record)}) {
    out += markdown(table);
  }
  for (const std::string& note : record.notes) out += "- " + cell(note) + "\n";
  return out;
}

}  // namespace trefoil
