// How reports render findings.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trefoil/inspect.h"

namespace trefoil {

// "findings: none", or a line each.
std::string finding_lines(const std::vector<Finding>& findings);
nlohmann::ordered_json findings_json(const std::vector<Finding>& findings);

// Indented by two, ended by a newline; bytes that are not UTF-8 are replaced.
std::string dump_json(const nlohmann::ordered_json& json);

}  // namespace trefoil
