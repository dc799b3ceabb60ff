// --fail-if: conditions over the flat names of a report's numbers. docs/evaluation.md, "Conditions".
//
//   conditions := condition (',' condition)*
//   condition  := name op number           op := '>' | '>=' | '<' | '<=' | '==' | '!='
//
// A name is the path of a number in the JSON report, keys joined by dots: "candidates.trefoil.kld.mean". "candidate."
// may stand for "candidates.", and a name without that prefix means the same number of every candidate ("kld.mean"). A
// condition that holds is a violation; so is one whose number has no value (a NaN, a missing standard error).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/eval_record.h"

namespace trefoil {

struct Condition {
  std::string text;  // as given, trimmed
  std::string name;
  std::string op;
  double bound = 0;
};

// Error(kInvalidArgument) quoting the text for anything that is not a condition.
std::vector<Condition> parse_conditions(std::span<const std::string> expressions);

// A number of a report under its full name.
struct NamedValue {
  std::string name;
  double value = kNoValue;
};

// The full names a condition speaks of, in the report's order. Error(kInvalidArgument) when there are none.
std::vector<std::string> resolve_names(const Condition& condition, std::span<const NamedValue> known,
                                       std::span<const std::string> candidate_labels);

std::vector<ConditionResult> apply_conditions(std::span<const Condition> conditions, std::span<const NamedValue> values,
                                              std::span<const std::string> candidate_labels);

}  // namespace trefoil
