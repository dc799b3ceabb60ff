// The output folder: refused unless it is empty or ours, filled through a staging folder inside it, published at the
// end.
//
//   OUT/.trefoil-partial/...   everything is written here first
//   publish()                   renames each file to its final name, the index last, and removes the staging folder
//
// Without publish() the destructor removes the staging folder and everything in it, so that a failed run leaves
// nothing. Renames stay within one file system because the staging folder lies inside the output folder.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.h"

namespace trefoil {

class OutputFolder {
 public:
  // `files` are the names (relative paths for files in folders) that publish() will bring. `source` is what the output
  // is made from; empty when it is made from nothing.
  // Error(kInvalidArgument) when the folder is `source`, lies inside it or around it, is not a folder, holds something and `overwrite` is false, or
  // holds a file not in `files`, or is not an output of this program. Writes nothing.
  OutputFolder(fs::path folder, const fs::path& source, std::vector<std::string> files, bool overwrite);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Error(kOverBudget) when the file system that will hold the folder has fewer than `bytes` free. Writes nothing.
  void require_space(uint64_t bytes) const;
  // Makes the staging folder, empty.
  void begin();
  const fs::path& staging() const { return staging_; }
  // Every file must be in the staging folder. `last` is renamed last.
  void publish(std::string_view last);

 private:
  fs::path folder_;
  fs::path staging_;
  std::vector<std::string> files_;
  bool created_folder_ = false;
  bool staging_exists_ = false;
};

// Side files of a checkpoint folder: every regular file but safetensors files and the index, in sub-folders too, hidden
// folders (.git, .cache) left out. Relative paths, sorted.
std::vector<std::string> side_files_of(const fs::path& folder);

// "sha256  name" lines for every one of `files` in `folder`, in the format of sha256sum.
std::string sha256_sums(const fs::path& folder, const std::vector<std::string>& files);

}  // namespace trefoil
