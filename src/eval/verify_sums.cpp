#include <algorithm>
#include <map>

#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "eval/verify_check.h"
#include "eval/verify_source.h"
#include "eval/verify_steps.h"

namespace trefoil {
namespace {

struct Sum {
  std::string file;
  std::string hex;
  std::string found;  // the sum, or an error
  bool is_error = false;
};

// A path that stays in the folder: relative, without "..".
bool stays_inside(const std::string& file) {
  const fs::path path(file);
  if (path.empty() || path.is_absolute()) return false;
  return std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".." || part == "."; });
}

// One line of `sha256sum`: 64 hex digits, a space, a space or '*', a path inside the folder.
std::optional<Sum> parse_line(std::string_view line) {
  constexpr size_t kDigits = 64;
  if (line.size() < kDigits + 3 || line[kDigits] != ' ' || (line[kDigits + 1] != ' ' && line[kDigits + 1] != '*'))
    return std::nullopt;
  Sum sum{std::string(line.substr(kDigits + 2)), std::string(line.substr(0, kDigits)), "", false};
  for (char& c : sum.hex) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return std::nullopt;
  }
  return stays_inside(sum.file) ? std::optional(sum) : std::nullopt;
}

std::vector<Sum> parse_sums(const std::string& text, CheckRecorder& check) {
  std::vector<Sum> sums;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    if (auto sum = parse_line(line)) {
      sums.push_back(std::move(*sum));
    } else {
      check.fail("", kSumsFile, "lines of 64 hex digits, two spaces, a path inside the folder", line.substr(0, 120));
    }
  }
  return sums;
}

void compute(const fs::path& folder, Sum& sum) {
  try {
    sum.found = sha256_of_file(folder / sum.file);
  } catch (const Error& unreadable) {
    sum.found = unreadable.what();
    sum.is_error = true;
  }
}

void check_coverage(const FolderScan& scan, const std::vector<Sum>& sums, CheckRecorder& check) {
  std::vector<std::string> files;
  for (const Sum& sum : sums) files.push_back(sum.file);
  std::sort(files.begin(), files.end());
  const auto is_listed = [&](const std::string& file) { return std::binary_search(files.begin(), files.end(), file); };
  std::vector<std::string> needed = {kConfigFile};
  if (scan.has_index()) needed.emplace_back(kIndexFile);
  for (const ScannedShard& shard : scan.shards()) {
    if (shard.in_folder) needed.push_back(shard.name);
  }
  for (const std::string& file : needed) {
    if (!is_listed(file)) check.fail("", file, "a line in SHA256SUMS", "none");
  }
  for (const std::string& file : scan.side_files()) {
    if (file != kSumsFile && file != kConfigFile && !is_listed(file))
      check.warn("", file, "a line in SHA256SUMS", "none");
  }
}

}  // namespace

VerifyCheck check_sums(const FolderScan& scan, const VerifyOptions& options, ThreadPool& pool) {
  CheckRecorder check("sums", "every file has the SHA-256 that SHA256SUMS gives", "files", options.max_findings);
  if (!options.check_sums) return std::move(check).skip("not asked for");
  if (!std::binary_search(scan.side_files().begin(), scan.side_files().end(), kSumsFile)) {
    return std::move(check).skip("no SHA256SUMS: a changed code that is still a code cannot be found without one");
  }
  std::vector<Sum> sums;
  try {
    sums = parse_sums(read_text_file(scan.folder() / kSumsFile), check);
  } catch (const Error& unreadable) {
    check.fail("", kSumsFile, "a readable file", unreadable.what());
  }
  const auto total = static_cast<int64_t>(sums.size());
  VerifySteps steps(options, "verify: sums", total);
  pool.parallel_for(total, [&](int64_t i) {
    steps.begin();
    compute(scan.folder(), sums[static_cast<size_t>(i)]);
    steps.end();
  });
  for (const Sum& sum : sums) {
    check.count();
    if (sum.is_error || sum.found != sum.hex) check.fail("", sum.file, sum.hex, sum.found);
  }
  check_coverage(scan, sums, check);
  return std::move(check).finish();
}

}  // namespace trefoil
