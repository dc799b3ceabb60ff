#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "trefoil/verify.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

const char* label_of(CheckStatus status) {
  switch (status) {
    case CheckStatus::kPass:
      return "pass";
    case CheckStatus::kWarn:
      return "warn";
    case CheckStatus::kFail:
      return "FAIL";
    case CheckStatus::kSkipped:
      return "skip";
  }
  return "?";
}

std::string describe(const VerifyFinding& finding) {
  std::string text = finding.is_failure ? "- " : "- (warning) ";
  text += finding.tensor;
  if (!finding.file.empty()) text += finding.tensor.empty() ? finding.file : " (" + finding.file + ")";
  if (!finding.tensor.empty() || !finding.file.empty()) text += ": ";
  if (!finding.expected.empty()) text += "expected " + finding.expected;
  if (!finding.expected.empty() && !finding.found.empty()) text += ", found ";
  return text + finding.found;
}

std::string describe(const VerifyCheck& check) {
  const std::string count = check.status == CheckStatus::kSkipped ? "" : format_count(check.checked) + " " + check.unit;
  std::string text = fmt::format("{}  {:<10}  {:<32}  {}\n", label_of(check.status), check.id, count, check.title);
  for (const std::string& note : check.notes) text += "      " + note + "\n";
  for (const VerifyFinding& finding : check.findings) text += "      " + describe(finding) + "\n";
  const uint64_t hidden = check.failures + check.warnings - check.findings.size();
  if (hidden > 0) {
    text +=
        fmt::format("      and {} more ({} failures and {} warnings in all)\n", hidden, check.failures, check.warnings);
  }
  return text;
}

Json to_json_object(const VerifyFinding& finding) {
  return {{"severity", finding.is_failure ? "failure" : "warning"},
          {"tensor", finding.tensor},
          {"file", finding.file},
          {"expected", finding.expected},
          {"found", finding.found}};
}

Json to_json_object(const VerifyCheck& check) {
  Json findings = Json::array();
  for (const VerifyFinding& finding : check.findings) findings.push_back(to_json_object(finding));
  Json figures = Json::object();
  for (const auto& [name, value] : check.figures) figures[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  return {{"id", check.id},
          {"title", check.title},
          {"status", to_string(check.status)},
          {"checked", check.checked},
          {"unit", check.unit},
          {"failures", check.failures},
          {"warnings", check.warnings},
          {"notes", check.notes},
          {"figures", figures},
          {"findings", findings}};
}

int64_t count_of(const VerifyReport& report, CheckStatus status) {
  return std::count_if(report.checks.begin(), report.checks.end(),
                       [&](const VerifyCheck& c) { return c.status == status; });
}

}  // namespace

const char* to_string(CheckStatus status) {
  switch (status) {
    case CheckStatus::kPass:
      return "pass";
    case CheckStatus::kWarn:
      return "warn";
    case CheckStatus::kFail:
      return "fail";
    case CheckStatus::kSkipped:
      return "skipped";
  }
  return "unknown";
}

bool VerifyReport::passed() const {
  return count_of(*this, CheckStatus::kFail) == 0;
}

const VerifyCheck* VerifyReport::find(const std::string& id) const {
  const auto it = std::find_if(checks.begin(), checks.end(), [&](const VerifyCheck& check) { return check.id == id; });
  return it == checks.end() ? nullptr : &*it;
}

std::string VerifyReport::to_text() const {
  std::string text = "verify " + folder + (against.empty() ? "" : " against " + against) + "\n\n";
  for (const VerifyCheck& check : checks) text += describe(check);
  text += fmt::format("\n{}: {} checks: {} passed, {} with warnings, {} failed, {} skipped\n",
                      passed() ? "passed" : "FAILED", checks.size(), count_of(*this, CheckStatus::kPass),
                      count_of(*this, CheckStatus::kWarn), count_of(*this, CheckStatus::kFail),
                      count_of(*this, CheckStatus::kSkipped));
  return text;
}

std::string VerifyReport::to_json() const {
  Json list = Json::array();
  for (const VerifyCheck& check : checks) list.push_back(to_json_object(check));
  const Json report = {{"folder", folder},
                       {"against", against.empty() ? Json(nullptr) : Json(against)},
                       {"passed", passed()},
                       {"checks", list}};
  // Names and messages may quote bytes of a broken file: what is not UTF-8 is replaced, not refused.
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trefoil
