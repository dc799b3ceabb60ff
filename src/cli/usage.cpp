#include "cli/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace trefoil::cli {
namespace {

bool is_option(const std::string& argument) {
  return argument.size() > 1 && argument.starts_with('-');
}

// The command that was reached: of `trefoil eval kld ...` it is kld.
const CLI::App& reached(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : reached(*parsed.front());
}

// "trefoil eval kld"
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

std::string commands_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

// Those of `arguments` that nobody took, in their order.
std::vector<std::string> left_over(const CLI::App& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> rest = program.remaining(/*recurse=*/true);
  std::vector<std::string> found;
  for (const std::string& argument : arguments) {
    const auto at = std::find(rest.begin(), rest.end(), argument);
    if (at == rest.end()) continue;
    found.push_back(argument);
    rest.erase(at);
  }
  return found;
}

bool names_option(const std::string& argument, const std::string& option) {
  return argument == option || argument.starts_with(option + "=");
}

// "TREFOIL_THREADS=0: " where the value that `complaint` is about was given by a variable; else nothing.
std::string variable_behind(const CLI::App& program, const std::string& complaint,
                            const std::vector<std::string>& arguments) {
  for (const CLI::Option* option : program.get_options()) {
    const std::string name = option->get_name(), variable = option->get_envname();
    const char* value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    if (value == nullptr || !complaint.starts_with(name + ":")) continue;
    if (std::any_of(arguments.begin(), arguments.end(), [&](const auto& typed) { return names_option(typed, name); }))
      continue;
    return fmt::format("{}={}: ", variable, value);
  }
  return "";
}

}  // namespace

std::string usage_complaint(const CLI::App& program, const CLI::ParseError& error,
                            const std::vector<std::string>& arguments) {
  const CLI::App& command = reached(program);
  const std::string name = full_name(command);
  const std::vector<std::string> rest = left_over(program, arguments);
  const auto option = std::find_if(rest.begin(), rest.end(), is_option);
  if (command.get_require_subcommand_min() > 0) {
    const auto typo = std::find_if_not(rest.begin(), rest.end(), is_option);
    if (typo == rest.end() && option == rest.end())
      return fmt::format("{} what? Its commands: {}", name, commands_of(command));
    if (typo != rest.end())
      return fmt::format("'{}' is no command of {}, which has: {}", *typo, name, commands_of(command));
  }
  if (option != rest.end()) return fmt::format("{}: no such option; {} --help lists them", *option, name);
  if (!rest.empty()) return fmt::format("'{}': one argument too many; {} --help lists them", rest.front(), name);
  return variable_behind(program, error.what(), arguments) + error.what();
}

}  // namespace trefoil::cli
