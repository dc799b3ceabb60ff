#include "plan/findings_text.h"

#include <fmt/format.h>

namespace trefoil {

std::string finding_lines(const std::vector<Finding>& findings) {
  if (findings.empty()) return "findings: none\n";
  std::string text = "findings\n";
  for (const Finding& finding : findings)
    text += fmt::format("  {}: {}\n", to_string(finding.severity), finding.message);
  return text;
}

nlohmann::ordered_json findings_json(const std::vector<Finding>& findings) {
  auto list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"severity", to_string(finding.severity)}, {"message", finding.message}});
  }
  return list;
}

std::string dump_json(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace trefoil
