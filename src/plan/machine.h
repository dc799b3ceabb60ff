// Machines: the one this process runs on, as the kernel and its cgroups describe it, and ones that people name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

struct MachineMemory {
  uint64_t total_bytes = 0;      // MemTotal
  uint64_t available_bytes = 0;  // MemAvailable: without swapping, page cache given back
  uint64_t swap_bytes = 0;       // SwapTotal
  uint64_t cgroup_bytes = 0;     // the least limit among this process's cgroup and its ancestors; 0: none
  std::string cgroup;            // the group that sets it

  // What a process here can have at most; 0 when nothing could be read.
  uint64_t limit_bytes() const;
};

// Reads /proc/meminfo and the cgroup files (v2, v1) below `root`, "/" but for tests. What cannot be read stays 0.
MachineMemory read_machine_memory(const std::filesystem::path& root = "/");

// The most memory this process has had resident so far (VmHWM); 0 when the system does not say.
uint64_t peak_resident_bytes();
// What it has resident now; 0 likewise.
uint64_t resident_bytes();

struct Machine {
  std::string name;
  int64_t devices = 1;
  uint64_t device_bytes = 0;
  bool gpu = false;
  int64_t cores = 0;  // 0: not said

  uint64_t memory_bytes() const { return static_cast<uint64_t>(devices) * device_bytes; }
};

// "8x141GB GPU", "64-core 768GB", "1.5TB server": a size, perhaps a count before it, perhaps cores; any other word is
// part of the name, and "GPU" means that nothing is streamed from disk. Error(kInvalidArgument) when there is no size,
// or two.
Machine parse_machine(std::string_view text);

// Shapes that people ask about.
std::vector<Machine> common_machines();

}  // namespace trefoil
