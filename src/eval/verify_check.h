// How a check of verify() collects what it finds: everything is counted, the first few findings are kept.
#pragma once

#include <string>
#include <utility>

#include "trefoil/verify.h"

namespace trefoil {

class CheckRecorder {
 public:
  CheckRecorder(std::string id, std::string title, std::string unit, size_t max_findings);

  // `expected` and `found` may be empty when the other says it all.
  void fail(std::string tensor, std::string file, std::string expected, std::string found);
  void warn(std::string tensor, std::string file, std::string expected, std::string found);
  void note(std::string text) { check_.notes.push_back(std::move(text)); }
  void figure(const std::string& name, double value) { check_.figures[name] = value; }
  void count(uint64_t more = 1) { check_.checked += more; }
  uint64_t failures() const { return check_.failures; }

  // The check as reported: fail, else warn, else pass.
  VerifyCheck finish() &&;
  // The check as one that could not be made.
  VerifyCheck skip(std::string reason) &&;

 private:
  void keep(VerifyFinding finding);

  VerifyCheck check_;
  size_t max_findings_;
  size_t kept_failures_ = 0;
};

}  // namespace trefoil
