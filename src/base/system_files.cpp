#include "base/system_files.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace trefoil {
namespace {

namespace fs = std::filesystem;

void append_with_ancestors(const fs::path& mount, const std::string& group, bool is_v1, std::vector<Cgroup>& groups) {
  fs::path relative = fs::path(group).relative_path().lexically_normal();
  if (std::find(relative.begin(), relative.end(), fs::path("..")) != relative.end())
    relative.clear();  // outside our view
  while (true) {
    groups.push_back({mount / relative, "/" + relative.string(), is_v1});
    if (relative.empty() || relative == ".") return;
    relative = relative.parent_path();
  }
}

// CPUs by quota and period in microseconds; nothing for v2's "max", v1's -1, and files that are not there.
std::optional<double> quota_of(const Cgroup& group) {
  std::istringstream v2(read_system_file(group.folder / "cpu.max"));
  std::istringstream v1(read_system_file(group.folder / "cpu.cfs_quota_us") + " " +
                        read_system_file(group.folder / "cpu.cfs_period_us"));
  std::istringstream& text = group.is_v1 ? v1 : v2;
  double quota = 0, period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

std::string read_system_file(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

// /proc/self/cgroup: "0::/user.slice/x" (v2) or "9:memory:/docker/abc" (v1), a line per hierarchy.
std::vector<Cgroup> cgroups_of_this_process(std::string_view controller, const fs::path& root) {
  std::vector<Cgroup> groups;
  std::istringstream lines(read_system_file(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") append_with_ancestors(root / "sys/fs/cgroup", group, false, groups);
    if (controllers.find("," + std::string(controller) + ",") != std::string::npos)
      append_with_ancestors(root / "sys/fs/cgroup" / controller, group, true, groups);
  }
  return groups;
}

int cgroup_cpus(const fs::path& root) {
  std::optional<double> least;
  for (const Cgroup& group : cgroups_of_this_process("cpu", root)) {
    const std::optional<double> quota = quota_of(group);
    if (quota && (!least || *quota < *least)) least = quota;
  }
  return least ? static_cast<int>(std::max(1.0, *least)) : 0;
}

}  // namespace trefoil
