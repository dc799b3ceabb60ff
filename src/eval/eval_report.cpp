#include <algorithm>
#include <cmath>

#include "checkpoint/file.h"
#include "eval/report.h"
#include "trefoil/eval.h"

namespace trefoil {

std::string EvalReport::to_json() const {
  return report_json(*record_);
}
std::string EvalReport::to_markdown() const {
  return report_markdown(*record_);
}
std::string EvalReport::to_html() const {
  return report_html(*record_);
}
std::string EvalReport::to_text() const {
  return report_text(*record_);
}

void EvalReport::write(const std::filesystem::path& folder) const {
  make_folder(folder);
  write_text_file(folder / (record_->command + ".json"), to_json());
  write_text_file(folder / (record_->command + ".md"), to_markdown());
  write_text_file(folder / (record_->command + ".html"), to_html());
}

bool EvalReport::passed() const {
  return std::none_of(record_->checks.begin(), record_->checks.end(),
                      [](const ConditionResult& check) { return check.violated; });
}

std::optional<double> EvalReport::number(std::string_view name) const {
  for (const NamedValue& value : named_values(*record_)) {
    if (value.name == name && !std::isnan(value.value)) return value.value;
  }
  return std::nullopt;
}

}  // namespace trefoil
