// The output folder: refused unless it is empty or ours, filled through a staging folder inside it, published at the
// end.
//
//   OUT/.trefoil-partial/...   everything is written here first
//   publish()                  renames each file to its final name, the index last, and removes the staging folder
//
// Renames stay within one file system because the staging folder lies inside the output folder. What happens to the
// staging folder when there is no publish() is the caller's choice: by default the destructor removes it, so that a
// failed run leaves nothing; after keep() it stays, for a later run to go on. A process that is killed leaves it in any
// case. A killed publish() is finished by the next one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.h"

namespace trefoil {

// Inside the output folder; and inside that, a file that is there once every file is made.
inline constexpr std::string_view kStagingName = ".trefoil-partial";
inline constexpr std::string_view kPublishMark = "publishing";

class OutputFolder {
 public:
  // `files` are the names (relative paths for files in folders) that publish() will bring. `source` is what the output
  // is made from; empty when it is made from nothing.
  // Error(kInvalidArgument) when the folder is `source`, lies inside it or around it, is not a folder, holds something
  // but a staging folder and `overwrite` is false, or holds a file not in `files`, or is not an output of this program.
  // Writes nothing, and removes only what a finished publish() had no time to.
  OutputFolder(fs::path folder, const fs::path& source, std::vector<std::string> files, bool overwrite);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const fs::path& folder() const { return folder_; }
  const fs::path& staging() const { return staging_; }
  // Whether an earlier run left a staging folder, and a job in it.
  bool has_staging() const;
  bool has_job() const;
  // Bytes on disk that it holds.
  uint64_t staged_bytes() const;
  // Whether an earlier run was interrupted while it published: every file is in the staging folder or has its name.
  bool is_publishing() const;

  // Error(kOverBudget) when the file system that will hold the folder has fewer than `bytes` free. Writes nothing.
  void require_space(uint64_t bytes) const;
  // Asks again what the constructor asked: another process may have brought an output meanwhile.
  void check() const;
  // Makes the staging folder, or goes on with the one that is there.
  void begin();
  // Empties the staging folder. Error(kInvalidArgument) when it holds an interrupted job (kJobName) and `overwrite` is
  // false, kIo when a process is at work on it.
  void clear();
  // Whether the staging folder outlives this object.
  void keep(bool keeps = true) { keeps_staging_ = keeps; }

  // What in the staging folder belongs to a job that can go on, and the lock of the processes at work on it.
  static constexpr std::string_view kJobName = ".job";
  static constexpr std::string_view kLockName = ".job/lock";
  // Every file must be in the staging folder. `last` is renamed last.
  void publish(std::string_view last);

 private:
  void rename_into_place(const std::string& name) const;

  fs::path folder_;
  fs::path staging_;
  std::vector<std::string> files_;
  bool overwrite_;
  bool created_folder_ = false;
  bool has_begun_ = false;
  bool keeps_staging_ = false;
};

// Whether `inner` lies somewhere below `outer`, symbolic links followed; either may not exist yet.
bool lies_inside(const fs::path& inner, const fs::path& outer);

// Free bytes of the file system that holds `path` or will hold it. Error(kIo) when the system will not say.
uint64_t free_space(const fs::path& path);

// "sha256  name" lines for every one of `files` in `folder`, in the format of sha256sum. `before_piece` as in
// sha256_of_file().
std::string sha256_sums(
    const fs::path& folder, const std::vector<std::string>& files, const std::function<void()>& before_piece = [] {});

}  // namespace trefoil
