// The three forms of an evaluation's record: JSON for machines, Markdown for a model card, one HTML page for people.
// docs/evaluation.md, "Reports". Pure functions of the record: the same record gives the same bytes.
#pragma once

#include <string>
#include <vector>

#include "eval/eval_record.h"
#include "eval/fail_if.h"

namespace trefoil {

// Keys in a fixed order; a number without a value is null; `X_se` beside X is its standard error.
std::string report_json(const EvalRecord& record);

// The main tables, aligned, for a terminal. Control characters in labels are shown as '?'.
std::string report_text(const EvalRecord& record);

std::string report_markdown(const EvalRecord& record);

// Self-contained: inline CSS and SVG, no script, nothing loaded from anywhere; readable on light and dark screens. All
// text from models, files and users is escaped.
std::string report_html(const EvalRecord& record);

// Every number of the JSON report under its dotted name, arrays excepted: what --fail-if can speak of. Numbers without
// a value are listed too, so the names of a record that has labels and sources but no results yet are those of the
// result.
std::vector<NamedValue> named_values(const EvalRecord& record);

}  // namespace trefoil
