#include "plan/open_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string>

#include "base/system_files.h"

namespace trefoil {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> process_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int64_t process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return process;
}

// Calls see(path) for what is in the folder; stops without a word where the folder is closed to us or goes away.
template <typename See>
void for_each_entry(const fs::path& folder, See see) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    see(entry->path());
}

// "1: FLOCK  ADVISORY  WRITE 1234 fe:00:56789 0 EOF": device and inode tell the file. Shown to every user.
void add_processes_with_lock(const fs::path& file, std::vector<int64_t>& processes) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return;
  const std::string wanted = fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::istringstream lines(read_system_file("/proc/locks"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, place;
    int64_t process = 0;
    if (words >> number >> kind >> advisory >> access >> process >> place && place == wanted && process > 0)
      processes.push_back(process);
  }
}

}  // namespace

std::vector<int64_t> processes_with_open(const fs::path& file) {
  std::vector<int64_t> processes;
  for_each_entry("/proc", [&](const fs::path& folder) {
    const std::optional<int64_t> process = process_of(folder);
    if (!process) return;
    bool has_it = false;
    for_each_entry(folder / "fd", [&](const fs::path& open) {
      std::error_code gone;
      has_it = has_it || fs::equivalent(open, file, gone);
    });
    if (has_it) processes.push_back(*process);
  });
  add_processes_with_lock(file, processes);
  std::sort(processes.begin(), processes.end());
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  return processes;
}

}  // namespace trefoil
