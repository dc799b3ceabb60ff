// Options whose values are names: help and complaints list the names, and nothing else is taken for one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace trefoil::cli {

template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
std::string names_of(const Choices<Value>& choices, const std::string& separator) {
  std::string names;
  for (const auto& choice : choices) names += (names.empty() ? "" : separator) + choice.first;
  return names;
}

// The option's variable, an enumeration or a number, gets the value of the name that was given.
template <typename Value>
CLI::Option* choose(CLI::Option* option, const Choices<Value>& choices) {
  const auto translate = [choices](std::string& text) {
    for (const auto& [name, value] : choices) {
      if (name != text) continue;
      text = std::to_string(static_cast<int>(value));
      return std::string();
    }
    return "'" + text + "' is none of " + names_of(choices, ", ");
  };
  return option->transform(CLI::Validator(translate, ""))->type_name(names_of(choices, "|"));
}

// The option's text must be one of `names`.
inline CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& names) {
  Choices<int> choices;
  for (const std::string& name : names) choices.emplace_back(name, 0);
  const auto refuse = [choices](const std::string& text) {
    for (const auto& choice : choices) {
      if (choice.first == text) return std::string();
    }
    return "'" + text + "' is none of " + names_of(choices, ", ");
  };
  return option->check(CLI::Validator(refuse, ""))->type_name(names_of(choices, "|"));
}

}  // namespace trefoil::cli
