// What the kernel says about this process in /proc and /sys. `root` is "/" but for tests.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

// The text of a small file there; empty when it cannot be read.
std::string read_system_file(const std::filesystem::path& path);

// A control group that limits this process.
struct Cgroup {
  std::filesystem::path folder;  // of its files
  std::string name;              // "/user.slice/x"
  bool is_v1 = false;
};

// This process's own group and all its ancestors, the own one first: of the v2 hierarchy, and of v1's for `controller`
// ("memory", "cpu"). A group outside of what this process sees counts as the root.
std::vector<Cgroup> cgroups_of_this_process(std::string_view controller, const std::filesystem::path& root = "/");

// The CPUs that the tightest quota among those groups grants, rounded down and at least 1; 0 when there is none.
int cgroup_cpus(const std::filesystem::path& root = "/");

}  // namespace trefoil
