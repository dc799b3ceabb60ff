#include "quantize/held_out_overlap.h"

#include "checkpoint/file.h"
#include "text/documents.h"

namespace trefoil {

HeldOutOverlap find_overlap(std::span<const std::vector<int32_t>> rows, std::span<const std::filesystem::path> files,
                            const Tokenizer& tokenizer) {
  std::vector<int32_t> stream;
  for (const auto& row : rows) stream.insert(stream.end(), row.begin(), row.end());
  PassageFinder finder(std::move(stream), rows.empty() ? 1 : rows[0].size());
  HeldOutOverlap overlap;
  for (const std::filesystem::path& path : files) {
    HeldOutFile file{path.filename().string(), sha256_of_file(path), {}};
    for_each_document(
        path, {}, [&](const Document& document) { finder.judge(document_ids(document, tokenizer), &file.passages); });
    overlap.files.push_back(std::move(file));
  }
  overlap.rows = finder.rows_with_shared_runs();
  return overlap;
}

}  // namespace trefoil
