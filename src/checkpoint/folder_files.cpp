#include "checkpoint/folder_files.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"

namespace trefoil {

std::vector<std::string> side_files_of(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const fs::path& path = it->path();
    if (it->is_directory(ignored)) {
      if (path.filename().string().starts_with(".")) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file(ignored) || path.extension() == ".safetensors") continue;
    std::string relative = path.lexically_relative(folder).string();
    if (relative != kIndexFile) files.push_back(std::move(relative));
  }
  if (error) fail(ErrorCode::kIo, "{}: cannot list the folder: {}", folder.string(), error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace trefoil
