#include "checkpoint/output_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"
#include "checkpoint/folder_files.h"

namespace trefoil {
namespace {

constexpr std::string_view kDoneName = ".trefoil-partial-done";  // a staging folder that is being removed
// A folder that holds one of these was written here.
constexpr std::array<std::string_view, 3> kOurMarks = {kReportFile, "recode.json", "synthetic.json"};

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

// Files only: an empty folder inside, such as lost+found, is no reason to refuse.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied)) {
    if (!entry.is_directory()) names.push_back(entry.path().lexically_relative(folder).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_staged(const std::string& name) {
  return name.starts_with(kStagingName);
}

// Why `folder` may not be written to; empty when it may. `publishing`: an interrupted run already brought some files.
// --overwrite is offered only where it would do.
std::string refusal(const fs::path& folder, const std::vector<std::string>& files, bool overwrite, bool publishing) {
  const std::vector<std::string> present = names_in(folder);
  if (std::all_of(present.begin(), present.end(), is_staged)) return "";  // empty, or an interrupted run
  if (!overwrite && !publishing) {
    return refusal(folder, files, true, false).empty() ? "it is not empty; --overwrite replaces an earlier output"
                                                       : "it is not empty, and not an earlier output to replace";
  }
  if (!publishing &&
      std::find_first_of(present.begin(), present.end(), kOurMarks.begin(), kOurMarks.end()) == present.end()) {
    return fmt::format("it is not empty and holds no {}, so it is not an output to overwrite",
                       fmt::join(kOurMarks, " or "));
  }
  for (const std::string& name : present) {
    if (!is_staged(name) && std::find(files.begin(), files.end(), name) == files.end()) {
      return fmt::format("it holds {}, which this output would not replace", name);
    }
  }
  return "";
}

}  // namespace

OutputFolder::OutputFolder(fs::path folder, const fs::path& source, std::vector<std::string> files, bool overwrite)
    : folder_(std::move(folder)), staging_(folder_ / kStagingName), files_(std::move(files)), overwrite_(overwrite) {
  if (folder_.empty()) fail(ErrorCode::kInvalidArgument, "no output folder given");
  // The source is read only, and its side files would include the output's; an output is replaced as a whole.
  if (!source.empty() && lies_inside(folder_, source))
    fail(ErrorCode::kInvalidArgument, "output {}: lies inside the source {}", folder_.string(), source.string());
  if (!source.empty() && lies_inside(source, folder_))
    fail(ErrorCode::kInvalidArgument, "output {}: the source {} lies inside it", folder_.string(), source.string());
  if (!fs::exists(folder_)) return;
  if (!fs::is_directory(folder_)) fail(ErrorCode::kInvalidArgument, "output {}: not a folder", folder_.string());
  if (!source.empty() && same_folder(folder_, source))
    fail(ErrorCode::kInvalidArgument, "output {}: is the source", folder_.string());
  std::error_code ignored;
  fs::remove_all(folder_ / kDoneName, ignored);
  check();
}

void OutputFolder::check() const {
  const std::string reason = refusal(folder_, files_, overwrite_, is_publishing());
  if (!reason.empty()) fail(ErrorCode::kInvalidArgument, "output {}: {}", folder_.string(), reason);
}

OutputFolder::~OutputFolder() {
  if (!has_begun_ || keeps_staging_) return;
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
  if (created_folder_) fs::remove(folder_, ignored);  // only if empty
}

bool OutputFolder::has_staging() const {
  std::error_code ignored;
  return fs::exists(staging_, ignored);
}

bool OutputFolder::has_job() const {
  std::error_code ignored;
  return fs::exists(staging_ / kJobName / "job.json", ignored);
}

uint64_t OutputFolder::staged_bytes() const {
  return space_used(staging_);
}

bool OutputFolder::is_publishing() const {
  std::error_code ignored;
  return fs::exists(staging_ / kPublishMark, ignored);
}

void OutputFolder::require_space(uint64_t bytes) const {
  const uint64_t free = free_space(folder_);
  if (free < bytes)
    fail(ErrorCode::kOverBudget, "output {}: {} free, {} needed", folder_.string(), format_gb(free), format_gb(bytes));
}

void OutputFolder::begin() {
  created_folder_ = !fs::exists(folder_);
  make_folder(folder_);
  has_begun_ = true;
  make_folder(staging_);
}

void OutputFolder::clear() {
  if (fs::exists(staging_ / kJobName)) {
    if (!FileLock::acquire(staging_ / kLockName, FileLock::Mode::kExclusive))
      fail(ErrorCode::kIo, "output {}: another process is at work on it", folder_.string());
    if (!overwrite_) {
      keep();
      fail(ErrorCode::kInvalidArgument, "output {}: it holds an interrupted quantize; --overwrite throws it away",
           folder_.string());
    }
  }
  std::error_code error;
  fs::remove_all(staging_, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot remove: {}", staging_.string(), error.message());
  make_folder(staging_);
}

void OutputFolder::rename_into_place(const std::string& name) const {
  const fs::path from = staging_ / name, to = folder_ / name;
  make_folder(to.parent_path());
  std::error_code error;
  fs::rename(from, to, error);
  // An interrupted publish() may have brought it already.
  if (error == std::errc::no_such_file_or_directory && fs::exists(to)) return;
  if (error) fail(ErrorCode::kIo, "cannot rename {} to {}: {}", from.string(), to.string(), error.message());
}

void OutputFolder::publish(std::string_view last) {
  std::vector<std::string> order = files_;
  std::stable_partition(order.begin(), order.end(), [&](const std::string& name) { return name != last; });
  if (!is_publishing()) {
    for (const std::string& name : order) {
      if (!fs::exists(staging_ / name)) fail(ErrorCode::kIo, "{}: is not there", (staging_ / name).string());
    }
    write_text_file(staging_ / kPublishMark, "every file is in this folder or under its final name\n");
  }
  // An index of an earlier output must not name the shards of this one.
  std::error_code ignored;
  if (fs::exists(staging_ / last)) fs::remove(folder_ / kIndexFile, ignored);
  for (const std::string& name : order) {
    if (name != last) rename_into_place(name);
  }
  // Syncs the folder, and with it the renames before.
  if (fs::exists(staging_ / last)) copy_file_atomic(staging_ / last, folder_ / last);
  // Under another name at once, so that nobody takes half a staging folder for an interrupted run.
  fs::rename(staging_, folder_ / kDoneName, ignored);
  fs::remove_all(folder_ / kDoneName, ignored);
  has_begun_ = false;
}

bool lies_inside(const fs::path& inner, const fs::path& outer) {
  std::error_code error;
  const fs::path a = fs::weakly_canonical(fs::absolute(inner), error);
  const fs::path b = fs::weakly_canonical(fs::absolute(outer), error);
  const fs::path relative = a.lexically_relative(b);
  return !error && !relative.empty() && relative != "." && *relative.begin() != "..";
}

uint64_t free_space(const fs::path& path) {
  fs::path existing = fs::absolute(path).lexically_normal();
  while (!fs::exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
  std::error_code error;
  const fs::space_info space = fs::space(existing, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot ask for free space: {}", existing.string(), error.message());
  return space.available;
}

std::string sha256_sums(const fs::path& folder, const std::vector<std::string>& files,
                        const std::function<void()>& before_piece) {
  std::string sums;
  for (const std::string& name : files)
    sums += fmt::format("{}  {}\n", sha256_of_file(folder / name, before_piece), name);
  return sums;
}

}  // namespace trefoil
