#include "quantize/held_out_overlap.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "checkpoint/file.h"
#include "text/documents.h"
#include "text/shared_runs.h"

namespace trefoil {
namespace {

class OverlapFinder {
 public:
  OverlapFinder(std::span<const std::vector<int32_t>> rows, const Tokenizer& tokenizer)
      : row_length_(rows.empty() ? 1 : rows[0].size()), tokenizer_(tokenizer) {
    for (const auto& row : rows) stream_.insert(stream_.end(), row.begin(), row.end());
  }

  HeldOutFile judge(const std::filesystem::path& path) {
    HeldOutFile file{path.filename().string(), sha256_of_file(path)};
    for_each_document(path, {}, [&](const Document& document) { judge(document_ids(document, tokenizer_), &file); });
    return file;
  }

  // Of those that judge() has found so far.
  int64_t rows_with_shared_runs() const {
    std::set<size_t> rows;
    for (const auto& [length, hashes] : shared_) {
      for_each_run(stream_, length, [&, run = length, &known = hashes](size_t end, uint64_t hash) {
        if (!known.contains(hash)) return;
        for (size_t row = (end - run) / row_length_; row <= (end - 1) / row_length_; ++row) rows.insert(row);
      });
    }
    return static_cast<int64_t>(rows.size());
  }

 private:
  void judge(std::span<const int32_t> ids, HeldOutFile* file) {
    const auto count = static_cast<int64_t>(ids.size());
    ++file->documents;
    file->tokens += count;
    if (count < kShortestJudged) {
      ++file->too_short;
      return;
    }
    const size_t length = std::min(ids.size(), static_cast<size_t>(kSharedRun));
    const std::vector<uint64_t>& seen = runs_of(length);
    const int64_t shared = ids_in_shared_runs(ids, length, [&](uint64_t hash) {
      const bool is_shared = std::binary_search(seen.begin(), seen.end(), hash);
      if (is_shared) shared_[length].insert(hash);
      return is_shared;
    });
    file->shared_tokens += shared;
    file->overlapping += shared > 0;
    file->contained += shared == count;
  }

  // Hashes of the calibration's runs of this length, sorted.
  const std::vector<uint64_t>& runs_of(size_t length) {
    std::vector<uint64_t>& hashes = runs_[length];
    if (hashes.empty() && stream_.size() >= length) {
      hashes.reserve(stream_.size());
      for_each_run(stream_, length, [&](size_t /*end*/, uint64_t hash) { hashes.push_back(hash); });
      std::sort(hashes.begin(), hashes.end());
    }
    return hashes;
  }

  size_t row_length_;
  const Tokenizer& tokenizer_;
  std::vector<int32_t> stream_;
  std::map<size_t, std::vector<uint64_t>> runs_;           // by length
  std::map<size_t, std::unordered_set<uint64_t>> shared_;  // by length, those found in held-out text
};

}  // namespace

HeldOutOverlap find_overlap(std::span<const std::vector<int32_t>> rows, std::span<const std::filesystem::path> files,
                            const Tokenizer& tokenizer) {
  OverlapFinder finder(rows, tokenizer);
  HeldOutOverlap overlap;
  for (const std::filesystem::path& file : files) overlap.files.push_back(finder.judge(file));
  overlap.rows = finder.rows_with_shared_runs();
  return overlap;
}

}  // namespace trefoil
