// What this machine is to this program: instruction sets, cores, memory and its limits, disk, and whether the kernels compute
// what they should here. Says what looks wrong. docs/cli.md, "doctor".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trefoil/inspect.h"

namespace trefoil {

struct LibraryVersion {
  std::string name;
  std::string version;
};

// A self-test, such as one kernel against its scalar form. run() throws when it fails; the message is reported.
struct NamedCheck {
  std::string name;
  std::function<void()> run;
};

struct DoctorOptions {
  std::filesystem::path folder = ".";     // where checkpoints would be written
  std::vector<LibraryVersion> libraries;  // what the caller links
  std::vector<NamedCheck> checks;         // run one after the other, each even if one before failed
  std::filesystem::path root = "/";       // where proc and sys lie; tests put their own here
};

struct CheckResult {
  std::string name;
  bool passed = false;
  std::string message;  // why not
};

struct DoctorReport {
  std::string cpu_model;               // as the kernel names it; empty when it does not
  std::vector<std::string> cpu_flags;  // those that matter here: avx2, fma, f16c, avx512f, ...
  std::string isa_detected;            // the best kernels this machine can run: "scalar", "avx2", "avx512"
  std::string isa_active;              // the ones in use
  int64_t cpus_online = 0;
  int64_t cpus_usable = 0;  // affinity mask and cgroup quota respected
  int64_t numa_nodes = 0;

  uint64_t memory_bytes = 0;
  uint64_t memory_available_bytes = 0;
  uint64_t swap_bytes = 0;
  uint64_t cgroup_limit_bytes = 0;  // 0: none
  std::string cgroup;               // that sets it

  std::string folder;
  uint64_t disk_total_bytes = 0;  // 0 when the folder is not there
  uint64_t disk_free_bytes = 0;   // for this user
  bool disk_is_memory = false;    // tmpfs or ramfs

  std::vector<LibraryVersion> libraries;
  std::vector<CheckResult> checks;
  std::vector<Finding> findings;  // errors first

  bool ok() const;  // no finding is an error
};

// Never throws for what it finds; what cannot be read is empty or 0 and noted.
DoctorReport doctor(const DoctorOptions& options);

std::string to_text(const DoctorReport& report);
std::string to_json(const DoctorReport& report);

}  // namespace trefoil
