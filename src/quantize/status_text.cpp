// A job's status for people and for programs.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "trefoil/status.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;
using Time = std::chrono::system_clock::time_point;

std::string utc(Time time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

std::string ago(Time time) {
  return format_duration(std::chrono::duration<double>(std::chrono::system_clock::now() - time).count());
}

std::string headline(const JobStatus& status) {
  switch (status.state) {
    case JobState::kFinished:
      return "finished";
    case JobState::kRunning:
      return status.is_publishing ? "running, the files are given their names" : "running";
    case JobState::kStopped:
      return status.is_publishing ? "stopped while the files were given their names; the same command ends it"
                                  : "stopped; the same command continues";
    case JobState::kElsewhere:
      return "begun on another machine; whether it runs cannot be seen from here";
  }
  return "?";
}

std::string line(std::string_view name, std::string_view value) {
  return fmt::format("  {:<10}{}\n", name, value);
}

std::string progress_lines(const JobStatus& status) {
  std::string text = line("layers", fmt::format("{} of {} done", status.done_layers, status.layers));
  if (status.step) {
    text += line("step",
                 fmt::format("{}, {} of {} units", status.step->title, status.step->done_units, status.step->units));
  } else {
    text += line("step", "all units are done; what is left is to check and to name the files");
  }
  text += line("units",
               fmt::format("{} of {}, {:.1f} % of the time", format_count(static_cast<uint64_t>(status.done_units)),
                           format_count(static_cast<uint64_t>(status.units)), 100 * status.done_fraction));
  text += line("busy", fmt::format("{} in units", format_duration(status.busy_s)));
  if (status.left_s) text += line("left", format_duration(*status.left_s));
  if (status.last_finished) {
    text += line("last", fmt::format("{}, {} ({} ago)", status.last_unit, utc(*status.last_finished),
                                     ago(*status.last_finished)));
  }
  return text;
}

std::string worker_lines(const JobStatus& status) {
  std::string text;
  for (const JobWorker& worker : status.workers) {
    text += line(text.empty() ? "processes" : "",
                 fmt::format("{}: {} units, {}{}", worker.name, format_count(static_cast<uint64_t>(worker.units)),
                             format_duration(worker.busy_s), worker.at_work ? ", at work" : ""));
  }
  return text;
}

std::string plan_lines(const JobStatus& status) {
  std::string memory = format_gib(status.planned_memory_bytes) + " planned";
  if (status.budget_bytes > 0) memory += fmt::format(" of {}", format_gib(status.budget_bytes));
  return line("memory", memory) + line("scratch", format_gb(status.planned_scratch_bytes) + " planned");
}

Json step_json(const JobStepStatus& step) {
  return {{"title", step.title}, {"units", step.units}, {"done_units", step.done_units}};
}

Json steps_json(const std::vector<JobStepStatus>& steps) {
  Json json = Json::array();
  for (const JobStepStatus& step : steps) json.push_back(step_json(step));
  return json;
}

Json workers_json(const std::vector<JobWorker>& workers) {
  Json json = Json::array();
  for (const JobWorker& worker : workers) {
    json.push_back(
        {{"name", worker.name}, {"units", worker.units}, {"busy_s", worker.busy_s}, {"at_work", worker.at_work}});
  }
  return json;
}

Json unix_seconds(const std::optional<Time>& time) {
  return time ? Json(std::chrono::duration_cast<std::chrono::seconds>(time->time_since_epoch()).count()) : Json();
}

}  // namespace

std::string to_text(const JobStatus& status) {
  std::string text = fmt::format("{}: {}\n", status.output, headline(status));
  if (status.state == JobState::kFinished) return text;
  return text + progress_lines(status) + worker_lines(status) + plan_lines(status);
}

std::string to_json(const JobStatus& status) {
  // The job of a finished output is gone, and with it what it counted.
  const auto count = [&](auto number) { return status.state == JobState::kFinished ? Json() : Json(number); };
  const Json json = {{"output", status.output},
                     {"state", to_string(status.state)},
                     {"publishing", status.is_publishing},
                     {"layers", count(status.layers)},
                     {"done_layers", count(status.done_layers)},
                     {"step", status.step ? step_json(*status.step) : Json()},
                     {"layer_steps", steps_json(status.in_layer)},
                     {"units", count(status.units)},
                     {"done_units", count(status.done_units)},
                     {"busy_s", count(status.busy_s)},
                     {"done_fraction", status.done_fraction},
                     {"left_s", status.left_s ? Json(*status.left_s) : Json()},
                     {"last_unit", status.last_finished ? Json(status.last_unit) : Json()},
                     {"last_finished_unix_s", unix_seconds(status.last_finished)},
                     {"processes", workers_json(status.workers)},
                     {"budget_bytes", count(status.budget_bytes)},
                     {"planned_memory_bytes", count(status.planned_memory_bytes)},
                     {"planned_scratch_bytes", count(status.planned_scratch_bytes)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trefoil
