#include "trefoil/doctor.h"

#include <sys/resource.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/parallel.h"
#include "plan/machine.h"

namespace trefoil {
namespace {

using Severity = Finding::Severity;

constexpr const char* kFlags[] = {"avx2",     "fma",      "f16c",        "avx512f",     "avx512bw",
                                  "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "amx_tile",
                                  "amx_bf16", "amx_int8", "asimd",       "bf16",        "i8mm"};

void note(DoctorReport& report, Severity severity, std::string message) {
  report.findings.push_back({severity, std::move(message)});
}

// --- processor ---

// The value of the first line "key : value"; empty when there is none.
std::string cpuinfo_value(const std::filesystem::path& root, std::string_view key) {
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "";
}

std::vector<std::string> relevant_flags(const std::filesystem::path& root) {
  std::string line = cpuinfo_value(root, "flags");
  if (line.empty()) line = cpuinfo_value(root, "Features");  // ARM
  std::vector<std::string> found;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (std::find(std::begin(kFlags), std::end(kFlags), word) != std::end(kFlags)) found.push_back(word);
  }
  return found;
}

// "0-1" or "0,2-3" -> how many; 0 when unreadable.
int64_t count_of_list(const std::filesystem::path& file_path) {
  std::ifstream file(file_path);
  int64_t count = 0;
  for (std::string range; std::getline(file, range, ',');) {
    int64_t first = 0, last = 0;
    const int read = std::sscanf(range.c_str(), "%ld-%ld", &first, &last);
    if (read < 1) continue;
    count += read == 2 && last >= first ? last - first + 1 : 1;
  }
  return count;
}

void look_at_cpu(const DoctorOptions& options, DoctorReport& report) {
  report.cpu_model = cpuinfo_value(options.root, "model name");
  report.cpu_flags = relevant_flags(options.root);
  report.isa_detected = to_string(detected_isa());
  report.isa_active = to_string(active_isa());
  report.cpus_online = std::max<int64_t>(1, std::thread::hardware_concurrency());
  report.cpus_usable = usable_cpus();
  report.numa_nodes = count_of_list(options.root / "sys/devices/system/node/online");
  if (detected_isa() == Isa::kScalar) {
    note(report, Severity::kWarning, "neither AVX2 nor AVX-512: the plain kernels run, many times slower");
  } else if (report.isa_active != report.isa_detected) {
    note(report, Severity::kNote,
         fmt::format("the kernels are capped at {}, this machine has {}", report.isa_active, report.isa_detected));
  }
  if (report.cpus_usable < report.cpus_online) {
    note(report, Severity::kNote,
         fmt::format("{} of {} CPUs may be used (affinity mask or cgroup quota)", report.cpus_usable,
                     report.cpus_online));
  }
  if (report.numa_nodes > 1) {
    note(report, Severity::kNote,
         fmt::format("{} NUMA nodes: memory of another node is slower to reach", report.numa_nodes));
  }
}

// --- memory ---

void look_at_memory(const DoctorOptions& options, DoctorReport& report) {
  const MachineMemory memory = read_machine_memory(options.root);
  report.memory_bytes = memory.total_bytes;
  report.memory_available_bytes = memory.available_bytes;
  report.swap_bytes = memory.swap_bytes;
  report.cgroup_limit_bytes = memory.cgroup_bytes;
  report.cgroup = memory.cgroup;
  if (memory.total_bytes == 0) return note(report, Severity::kWarning, "the size of memory cannot be read");
  if (memory.cgroup_bytes != 0 && memory.cgroup_bytes < memory.total_bytes) {
    note(report, Severity::kNote,
         fmt::format("cgroup {} allows {} of {}; page cache counts against it", memory.cgroup,
                     format_gib(memory.cgroup_bytes), format_gib(memory.total_bytes)));
  }
  if (memory.available_bytes < memory.limit_bytes() / 10) {
    note(report, Severity::kWarning,
         fmt::format("only {} of memory are available, others use the rest", format_gib(memory.available_bytes)));
  }
}

void look_at_limits(DoctorReport& report) {
  struct Limit {
    __rlimit_resource_t resource;
    uint64_t enough;
    const char* consequence;
  };
  const Limit limits[] = {
      {RLIMIT_AS, RLIM_INFINITY, "address space (ulimit -v) is limited to {} bytes: mapped shards count against it"},
      {RLIMIT_FSIZE, RLIM_INFINITY, "files (ulimit -f) are limited to {} bytes: a shard may be larger"},
      {RLIMIT_NOFILE, 256, "only {} files may be open (ulimit -n): a checkpoint has a hundred shards"},
  };
  for (const Limit& limit : limits) {
    rlimit found{};
    if (getrlimit(limit.resource, &found) != 0 || found.rlim_cur >= limit.enough) continue;
    note(report, Severity::kWarning, fmt::format(fmt::runtime(limit.consequence), format_count(found.rlim_cur)));
  }
}

// --- disk ---

void look_at_disk(const DoctorOptions& options, DoctorReport& report) {
  constexpr long kTmpfs = 0x01021994, kRamfs = static_cast<long>(0x858458f6u);  // linux/magic.h
  report.folder = options.folder.string();
  struct statfs found {};
  if (statfs(report.folder.c_str(), &found) != 0) {
    return note(report, Severity::kWarning, fmt::format("folder {} is not there", report.folder));
  }
  const auto block = static_cast<uint64_t>(found.f_bsize);
  report.disk_total_bytes = static_cast<uint64_t>(found.f_blocks) * block;
  report.disk_free_bytes = static_cast<uint64_t>(found.f_bavail) * block;
  report.disk_is_memory = found.f_type == kTmpfs || found.f_type == kRamfs;
  if (report.disk_is_memory) {
    note(report, Severity::kWarning,
         fmt::format("{} lies in memory: what is written there is taken from it", report.folder));
  }
  constexpr uint64_t kKimiK3AtThreeBits = 1'220'521'677'824;
  if (report.disk_free_bytes < kKimiK3AtThreeBits) {
    note(report, Severity::kNote,
         fmt::format("{} free in {}: less than Kimi-K3 at three bits ({})", format_gb(report.disk_free_bytes),
                     report.folder, format_gb(kKimiK3AtThreeBits)));
  }
}

void run_checks(const DoctorOptions& options, DoctorReport& report) {
  for (const NamedCheck& check : options.checks) {
    CheckResult result{check.name, true, ""};
    try {
      check.run();
    } catch (const std::exception& error) {
      result = {check.name, false, error.what()};
      note(report, Severity::kError, fmt::format("{}: {}", check.name, error.what()));
    }
    report.checks.push_back(std::move(result));
  }
}

}  // namespace

bool DoctorReport::ok() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.severity == Severity::kError; });
}

DoctorReport doctor(const DoctorOptions& options) {
  DoctorReport report;
  report.libraries = options.libraries;
  look_at_cpu(options, report);
  look_at_memory(options, report);
  look_at_limits(report);
  look_at_disk(options, report);
  run_checks(options, report);
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return report;
}

}  // namespace trefoil
