// What holds of every HTML report.
#pragma once

#include <string>

namespace trefoil {

// Every element that opens closes, in order; attributes are quoted. Enough of HTML for what report/ writes.
void expect_balanced(const std::string& html);

// Nothing is loaded from anywhere, and nothing runs.
void expect_self_contained(const std::string& html);

}  // namespace trefoil
