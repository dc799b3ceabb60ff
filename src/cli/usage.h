// What is wrong with a command line, in one line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trefoil::cli {

// A command or an option that nothing knows is named first: it is what most other complaints come from.
// `arguments`: as they were typed, without the program's name.
std::string usage_complaint(const CLI::App& program, const CLI::ParseError& error,
                            const std::vector<std::string>& arguments);

}  // namespace trefoil::cli
