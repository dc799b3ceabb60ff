#include "eval/fail_if.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kCandidates = "candidates.";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

double parse_bound(std::string_view text, std::string_view condition) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    fail(ErrorCode::kInvalidArgument, "--fail-if '{}': '{}' is not a number", condition, text);
  }
  return value;
}

Condition parse_condition(std::string_view text) {
  const size_t op_begin = text.find_first_of("<>=!");
  if (op_begin == std::string_view::npos) {
    fail(ErrorCode::kInvalidArgument,
         "--fail-if '{}': no comparison; expected NAME followed by > >= < <= == or !=", text);
  }
  const size_t op_end = std::min(text.size(), text.find_first_not_of("<>=!", op_begin));
  Condition condition;
  condition.text = text;
  condition.name = trim(text.substr(0, op_begin));
  condition.op = text.substr(op_begin, op_end - op_begin);
  constexpr std::string_view kOps[] = {">", ">=", "<", "<=", "==", "!="};
  if (std::find(std::begin(kOps), std::end(kOps), condition.op) == std::end(kOps)) {
    fail(ErrorCode::kInvalidArgument, "--fail-if '{}': unknown comparison '{}'", text, condition.op);
  }
  if (condition.name.empty())
    fail(ErrorCode::kInvalidArgument, "--fail-if '{}': no name before '{}'", text, condition.op);
  condition.bound = parse_bound(trim(text.substr(op_end)), text);
  return condition;
}

bool holds(double value, const std::string& op, double bound) {
  if (op == ">") return value > bound;
  if (op == ">=") return value >= bound;
  if (op == "<") return value < bound;
  if (op == "<=") return value <= bound;
  if (op == "==") return value == bound;
  return value != bound;
}

[[noreturn]] void unknown_name(const Condition& condition, std::span<const NamedValue> known) {
  std::string examples;
  for (const NamedValue& value : known) {
    if (examples.size() > 300) break;
    examples += (examples.empty() ? "" : ", ") + value.name;
  }
  fail(ErrorCode::kInvalidArgument, "--fail-if '{}': this report has no number called '{}'; it has {}, ...",
       condition.text, condition.name, examples);
}

}  // namespace

std::vector<Condition> parse_conditions(std::span<const std::string> expressions) {
  std::vector<Condition> conditions;
  for (const std::string& expression : expressions) {
    std::string_view rest = expression;
    while (true) {
      const size_t comma = rest.find(',');
      const std::string_view text = trim(rest.substr(0, comma));
      if (text.empty()) fail(ErrorCode::kInvalidArgument, "--fail-if '{}': an empty condition", expression);
      conditions.push_back(parse_condition(text));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return conditions;
}

std::vector<std::string> resolve_names(const Condition& condition, std::span<const NamedValue> known,
                                       std::span<const std::string> candidate_labels) {
  constexpr std::string_view kSingular = "candidate.";
  std::string name = condition.name;
  if (name.starts_with(kSingular)) name = std::string(kCandidates) + name.substr(kSingular.size());
  const auto is_known = [&](const std::string& full) {
    return std::any_of(known.begin(), known.end(), [&](const NamedValue& value) { return value.name == full; });
  };
  if (is_known(name)) return {name};
  std::vector<std::string> names;
  for (const std::string& label : candidate_labels) {
    std::string full = std::string(kCandidates) + label + "." + name;
    if (is_known(full)) names.push_back(std::move(full));
  }
  if (names.empty()) unknown_name(condition, known);
  return names;
}

std::vector<ConditionResult> apply_conditions(std::span<const Condition> conditions, std::span<const NamedValue> values,
                                              std::span<const std::string> candidate_labels) {
  std::vector<ConditionResult> results;
  for (const Condition& condition : conditions) {
    for (const std::string& name : resolve_names(condition, values, candidate_labels)) {
      const auto found =
          std::find_if(values.begin(), values.end(), [&](const NamedValue& v) { return v.name == name; });
      const bool violated = std::isnan(found->value) || holds(found->value, condition.op, condition.bound);
      results.push_back({condition.text, name, found->value, violated});
    }
  }
  return results;
}

}  // namespace trefoil
