#include "eval/verify_check.h"

namespace trefoil {

CheckRecorder::CheckRecorder(std::string id, std::string title, std::string unit, size_t max_findings)
    : max_findings_(max_findings) {
  check_.id = std::move(id);
  check_.title = std::move(title);
  check_.unit = std::move(unit);
}

void CheckRecorder::fail(std::string tensor, std::string file, std::string expected, std::string found) {
  ++check_.failures;
  keep({true, std::move(tensor), std::move(file), std::move(expected), std::move(found)});
}

void CheckRecorder::warn(std::string tensor, std::string file, std::string expected, std::string found) {
  ++check_.warnings;
  keep({false, std::move(tensor), std::move(file), std::move(expected), std::move(found)});
}

// Failures stand before warnings, and push them out when the list is full.
void CheckRecorder::keep(VerifyFinding finding) {
  auto& findings = check_.findings;
  if (!finding.is_failure) {
    if (findings.size() < max_findings_) findings.push_back(std::move(finding));
    return;
  }
  if (kept_failures_ >= max_findings_) return;
  findings.insert(findings.begin() + static_cast<std::ptrdiff_t>(kept_failures_), std::move(finding));
  ++kept_failures_;
  if (findings.size() > max_findings_) findings.pop_back();
}

VerifyCheck CheckRecorder::finish() && {
  if (check_.failures > 0) {
    check_.status = CheckStatus::kFail;
  } else {
    check_.status = check_.warnings > 0 ? CheckStatus::kWarn : CheckStatus::kPass;
  }
  return std::move(check_);
}

VerifyCheck CheckRecorder::skip(std::string reason) && {
  check_.status = CheckStatus::kSkipped;
  check_.notes.push_back(std::move(reason));
  return std::move(check_);
}

}  // namespace trefoil
