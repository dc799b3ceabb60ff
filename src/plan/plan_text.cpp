// The report of plan() for people and for programs.
#include <fmt/format.h>

#include "base/bytes.h"
#include "plan/findings_text.h"
#include "plan/text_table.h"
#include "trefoil/plan.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

std::string form_table(const std::vector<PlannedForm>& forms) {
  TextTable table("llrrrr");
  table.row({"stored", "routed experts", "experts, bytes", "whole model, bytes", "bits/weight", "per token"});
  table.rule();
  for (const PlannedForm& form : forms) {
    table.row({form.name, form.storage, format_count(form.expert_bytes()), format_count(form.total_bytes()),
               fmt::format("{:.3f}", form.bits_per_weight), format_gb(form.bytes_per_token)});
  }
  std::string text = table.text();
  for (const PlannedForm& form : forms) text += fmt::format("  {}: {}\n", form.name, form.why);
  return text +
         fmt::format("  everything but the routed experts: {} bytes in each; per token: weights read at batch size 1\n",
                     format_count(forms.front().rest_bytes));
}

std::string line_table(const std::vector<PlanLine>& lines) {
  TextTable table("lrrl");
  for (const PlanLine& line : lines) {
    table.row({line.name, format_count(line.bytes), format_gib(line.bytes), line.why});
  }
  return table.text();
}

const char* to_string(FormFit::Verdict verdict) {
  switch (verdict) {
    case FormFit::Verdict::kFits:
      return "fits";
    case FormFit::Verdict::kStreams:
      return "streams";
    case FormFit::Verdict::kNo:
      return "does not fit";
  }
  return "unknown";
}

std::string machine_lines(const std::vector<MachineFit>& machines) {
  std::string text;
  for (const MachineFit& machine : machines) {
    text += fmt::format("  {} ({}, {})\n", machine.machine, format_gb(machine.memory_bytes),
                        format_gib(machine.memory_bytes));
    TextTable table("lll");
    for (const FormFit& fit : machine.forms) table.row({"  " + fit.form, to_string(fit.verdict), fit.why});
    text += table.text();
  }
  return text;
}

// Hours, or minutes where hours would read 0.0.
std::string time_text(double hours) {
  if (hours >= 0.1) return fmt::format("{:.1f} h", hours);
  return hours * 60 >= 0.1 ? fmt::format("{:.1f} min", hours * 60) : "< 0.1 min";
}

std::string quantize_machines_text(const std::vector<QuantizeFit>& machines) {
  TextTable table("lrrrl");
  table.row({"machine", "memory", "arithmetic", "disk", ""});
  for (const QuantizeFit& fit : machines) {
    if (!fit.fits) {
      table.row({fit.machine, "too small", "", "", fit.why});
      continue;
    }
    const std::string arithmetic = fit.arithmetic_hours > 0 ? time_text(fit.arithmetic_hours) : "not measured";
    table.row({fit.machine, format_gib(fit.peak_memory_bytes), arithmetic, time_text(fit.disk_hours), fit.why});
  }
  return "quantize, machines (the two times follow each other where nothing overlaps)\n" + table.text();
}

std::string quantize_text(const QuantizePlan& plan, const MachineFit& here) {
  std::string text = fmt::format("quantize with recipe trefoil, {} calibration tokens: memory at the worst moment\n{}",
                                 format_count(static_cast<uint64_t>(plan.calibration_tokens)), line_table(plan.memory));
  text += fmt::format("  sum {}: {} this machine's {}; the least that does is {}\n\n",
                      format_gib(plan.peak_memory_bytes), plan.fits_memory ? "fits" : "more than",
                      format_gib(here.memory_bytes), format_gib(plan.least_memory_bytes));
  text += "quantize, disk\n" + line_table(plan.disk) + "\n";
  TextTable table("lrrl");
  double flop = 0;
  for (const ComputeEstimate& estimate : plan.compute) {
    table.row(
        {estimate.name, fmt::format("{:.2e}", estimate.flop), time_text(estimate.flop / 1e12 / 3600), estimate.why});
    flop += estimate.flop;
  }
  text += "quantize, arithmetic (FLOP, and time at 1 TFLOP/s sustained)\n" + table.text();
  text += fmt::format("  sum {:.2e} FLOP: {} at 1 TFLOP/s\n\n", flop, time_text(flop / 1e12 / 3600));
  return text + quantize_machines_text(plan.machines);
}

Json quantize_machines_json(const std::vector<QuantizeFit>& machines) {
  Json list = Json::array();
  for (const QuantizeFit& fit : machines) {
    list.push_back({{"machine", fit.machine},
                    {"fits", fit.fits},
                    {"processes", fit.processes},
                    {"experts_at_once", fit.experts_at_once},
                    {"peak_memory_bytes", fit.peak_memory_bytes},
                    {"scratch_in_memory", fit.scratch_in_memory},
                    {"arithmetic_hours", fit.arithmetic_hours},
                    {"disk_hours", fit.disk_hours},
                    {"why", fit.why}});
  }
  return list;
}

Json lines_json(const std::vector<PlanLine>& lines) {
  Json list = Json::array();
  for (const PlanLine& line : lines) list.push_back({{"name", line.name}, {"bytes", line.bytes}, {"why", line.why}});
  return list;
}

Json form_json(const PlannedForm& form) {
  return {{"name", form.name},
          {"storage", form.storage},
          {"packed_bytes", form.packed_bytes},
          {"scale_bytes", form.scale_bytes},
          {"shape_bytes", form.shape_bytes},
          {"expert_bytes", form.expert_bytes()},
          {"rest_bytes", form.rest_bytes},
          {"total_bytes", form.total_bytes()},
          {"bits_per_weight", form.bits_per_weight},
          {"bytes_per_token", form.bytes_per_token},
          {"why", form.why}};
}

Json machine_json(const MachineFit& machine) {
  Json forms = Json::array();
  for (const FormFit& fit : machine.forms) {
    forms.push_back({{"form", fit.form},
                     {"verdict", to_string(fit.verdict)},
                     {"margin_bytes", fit.margin_bytes},
                     {"why", fit.why}});
  }
  return {{"machine", machine.machine}, {"memory_bytes", machine.memory_bytes}, {"forms", forms}};
}

Json quantize_json(const QuantizePlan& plan) {
  Json compute = Json::array();
  for (const ComputeEstimate& estimate : plan.compute) {
    compute.push_back({{"name", estimate.name}, {"flop", estimate.flop}, {"why", estimate.why}});
  }
  return {{"recipe", "trefoil"},
          {"calibration_tokens", plan.calibration_tokens},
          {"memory", lines_json(plan.memory)},
          {"peak_memory_bytes", plan.peak_memory_bytes},
          {"fits_memory", plan.fits_memory},
          {"least_memory_bytes", plan.least_memory_bytes},
          {"disk", lines_json(plan.disk)},
          {"compute", compute},
          {"machines", quantize_machines_json(plan.machines)}};
}

}  // namespace

std::string to_text(const PlanReport& report) {
  std::string text = fmt::format("{}: plan for {}; computed, not measured\n\n", report.path, to_string(report.task));
  text += form_table(report.forms) + "\n";
  text += fmt::format("one sequence, {} tokens\n{}", format_count(static_cast<uint64_t>(report.context)),
                      line_table(report.sequence_state));
  text += fmt::format("  {} at once: {}\n\n", report.sequences, format_gib(report.state_bytes));
  if (report.quantize.has_value()) text += quantize_text(*report.quantize, report.machines.front()) + "\n";
  text += "machines (weights and sequence state against memory; the runtime's own buffers come out of the margin)\n";
  text +=
      "GPU rows are arithmetic for any runtime, this program computes on CPUs; \"streams\" maps the shards and leaves "
      "the "
      "cache to the kernel\n";
  text += machine_lines(report.machines);
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  return text;
}

std::string to_json(const PlanReport& report) {
  Json forms = Json::array(), machines = Json::array();
  for (const PlannedForm& form : report.forms) forms.push_back(form_json(form));
  for (const MachineFit& machine : report.machines) machines.push_back(machine_json(machine));
  const Json json = {
      {"path", report.path},
      {"task", to_string(report.task)},
      {"forms", forms},
      {"context", report.context},
      {"sequences", report.sequences},
      {"sequence_state", lines_json(report.sequence_state)},
      {"state_bytes", report.state_bytes},
      {"quantize", report.quantize.has_value() ? quantize_json(*report.quantize) : Json(nullptr)},
      {"machines", machines},
      {"notes", report.notes},
  };
  return dump_json(json);
}

}  // namespace trefoil
