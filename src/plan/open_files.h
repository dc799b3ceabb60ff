// Which processes of this machine have a file open, as /proc tells: a look from outside that disturbs nobody.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace trefoil {

// Process ids, ascending. Of other users' processes only those that hold a lock on the file are seen, and a file that is
// gone is open nowhere.
std::vector<int64_t> processes_with_open(const std::filesystem::path& file);

}  // namespace trefoil
