#include "plan/open_files.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

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
  std::sort(processes.begin(), processes.end());
  return processes;
}

}  // namespace trefoil
