// The MODEL argument: a folder, or org/name[@revision] as the hub cache on this machine holds it. Never downloads.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

namespace trefoil::cli {

void add_model_argument(CLI::App& command, std::string& model, const std::string& name = "MODEL");

// The folder. Error(kNotFound) says where it was looked for and which command would download it.
std::filesystem::path resolve_model(const std::string& model);

// "~/x" -> "$HOME/x".
std::filesystem::path expand_home(const std::string& path);

}  // namespace trefoil::cli
