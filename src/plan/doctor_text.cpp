// The report of doctor() for people and for programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "plan/findings_text.h"
#include "plan/text_table.h"
#include "trefoil/doctor.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

std::string or_unknown(const std::string& text) {
  return text.empty() ? "unknown" : text;
}

Json libraries_json(const std::vector<LibraryVersion>& libraries) {
  Json list = Json::array();
  for (const LibraryVersion& library : libraries)
    list.push_back({{"name", library.name}, {"version", library.version}});
  return list;
}

Json checks_json(const std::vector<CheckResult>& checks) {
  Json list = Json::array();
  for (const CheckResult& check : checks) {
    list.push_back({{"name", check.name}, {"passed", check.passed}, {"message", check.message}});
  }
  return list;
}

}  // namespace

std::string to_text(const DoctorReport& report) {
  TextTable table("ll");
  table.row({"CPU", or_unknown(report.cpu_model)});
  table.row({"", fmt::format("{}", fmt::join(report.cpu_flags, " "))});
  table.row({"kernels", fmt::format("{} (this machine can run {})", report.isa_active, report.isa_detected)});
  table.row({"CPUs", fmt::format("{} usable of {} online", report.cpus_usable, report.cpus_online)});
  table.row({"memory", fmt::format("{}, {} available, {} swap", format_gib(report.memory_bytes),
                                   format_gib(report.memory_available_bytes), format_gib(report.swap_bytes))});
  if (report.cgroup_limit_bytes != 0) {
    table.row({"cgroup limit", fmt::format("{} ({})", format_gib(report.cgroup_limit_bytes), report.cgroup)});
  }
  table.row({"disk", fmt::format("{}: {} free of {}", report.folder, format_gb(report.disk_free_bytes),
                                 format_gb(report.disk_total_bytes))});
  for (const LibraryVersion& library : report.libraries) table.row({library.name, or_unknown(library.version)});
  for (const CheckResult& check : report.checks) {
    table.row({"check: " + check.name, check.passed ? "passed" : "FAILED: " + check.message});
  }
  return table.text() + "\n" + finding_lines(report.findings);
}

std::string to_json(const DoctorReport& report) {
  return dump_json({
      {"ok", report.ok()},
      {"cpu",
       {{"model", report.cpu_model},
        {"flags", report.cpu_flags},
        {"isa_detected", report.isa_detected},
        {"isa_active", report.isa_active},
        {"online", report.cpus_online},
        {"usable", report.cpus_usable},
        {"numa_nodes", report.numa_nodes}}},
      {"memory",
       {{"total_bytes", report.memory_bytes},
        {"available_bytes", report.memory_available_bytes},
        {"swap_bytes", report.swap_bytes},
        {"cgroup_limit_bytes", report.cgroup_limit_bytes == 0 ? Json(nullptr) : Json(report.cgroup_limit_bytes)},
        {"cgroup", report.cgroup}}},
      {"disk",
       {{"folder", report.folder},
        {"total_bytes", report.disk_total_bytes},
        {"free_bytes", report.disk_free_bytes},
        {"is_memory", report.disk_is_memory}}},
      {"libraries", libraries_json(report.libraries)},
      {"checks", checks_json(report.checks)},
      {"findings", findings_json(report.findings)},
  });
}

}  // namespace trefoil
