// The tables of an evaluation: Markdown and HTML show the same ones.
#pragma once

#include <string>
#include <vector>

#include "eval/eval_record.h"
#include "report/report_table.h"

namespace trefoil {

ReportTable headline_table(const EvalRecord& record);
ReportTable tail_table(const EvalRecord& record);
ReportTable pair_table(const EvalRecord& record);
ReportTable noise_table(const EvalRecord& record);
ReportTable source_table(const EvalRecord& record);
ReportTable entropy_table(const EvalRecord& record);
ReportTable weight_table(const EvalRecord& record);
ReportTable isolated_table(const EvalRecord& record);
ReportTable decile_table(const EvalRecord& record);
ReportTable stream_table(const EvalRecord& record);
ReportTable check_table(const EvalRecord& record);
ReportTable model_table(const EvalRecord& record);
ReportTable provenance_table(const EvalRecord& record);

// The largest mean KL divergence among the noise rows; null when there are none.
const NoiseSummary* largest_noise(const EvalRecord& record);

// "0.0512 ± 0.0003": two digits of the error; "-" without a value; without an error four digits of the value.
std::string format_estimate(const Estimate& estimate);
// The same of a share in per cent, "93.21 ± 0.12".
std::string format_percent(const Estimate& share);

}  // namespace trefoil
