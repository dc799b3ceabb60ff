#include "text/document_pool.h"

#include <algorithm>

#include "base/error.h"
#include "text/pack_rows.h"

namespace trefoil {

DocumentPool::DocumentPool(std::vector<std::filesystem::path> files, uint64_t seed, uint64_t batch_bytes)
    : files_(std::move(files)), batch_bytes_(batch_bytes) {
  for (const std::filesystem::path& file : files_) {
    first_.push_back(static_cast<int64_t>(bytes_.size()));
    for_each_document(file, {}, [&](const Document& document) { bytes_.push_back(document.content_bytes()); });
  }
  first_.push_back(static_cast<int64_t>(bytes_.size()));
  order_ = document_order(static_cast<int64_t>(bytes_.size()), seed);
}

std::optional<DocumentPool::Entry> DocumentPool::next() {
  if (batch_.empty()) fetch_batch();
  if (batch_.empty()) return std::nullopt;
  Entry entry = std::move(batch_.front());
  batch_.pop_front();
  return entry;
}

void DocumentPool::fetch_batch() {
  std::vector<Wanted> wanted;
  for (uint64_t bytes = 0; next_ < order_.size() && (wanted.empty() || bytes < batch_bytes_); ++next_) {
    wanted.push_back({order_[next_], wanted.size()});
    bytes += bytes_[static_cast<size_t>(order_[next_])];
  }
  batch_.resize(wanted.size());
  std::sort(wanted.begin(), wanted.end(),
            [](const Wanted& a, const Wanted& b) { return a.document_idx < b.document_idx; });
  auto begin = wanted.begin();
  for (size_t file_idx = 0; file_idx < files_.size(); ++file_idx) {
    const auto end =
        std::find_if(begin, wanted.end(), [&](const Wanted& w) { return w.document_idx >= first_[file_idx + 1]; });
    fetch_from(file_idx, {begin, end});
    begin = end;
  }
}

void DocumentPool::fetch_from(size_t file_idx, std::span<const Wanted> wanted) {
  if (wanted.empty()) return;
  DocumentReader reader(files_[file_idx]);
  int64_t document_idx = first_[file_idx];
  for (const Wanted& w : wanted) {
    std::optional<Document> document;
    while (document_idx < w.document_idx && reader.skip()) ++document_idx;
    if (document_idx == w.document_idx) document = reader.next();
    if (!document) {
      fail(ErrorCode::kCorrupt, "{}: holds fewer documents than a moment ago", files_[file_idx].string());
    }
    batch_[w.slot] = {std::move(*document), file_idx, document_idx++};
  }
}

}  // namespace trefoil
