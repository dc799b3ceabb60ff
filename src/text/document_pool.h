// The documents of some files in the order of a seed, without holding them: a first pass counts and checks every line,
// further ones fetch what comes next, some at a time. Memory: a batch of documents, and 16 bytes for every document.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "text/documents.h"

namespace trefoil {

class DocumentPool {
 public:
  struct Entry {
    Document document;
    size_t file_idx = 0;
    int64_t document_idx = 0;  // among all of the pool, in file order
  };

  // Reads every file once; errors as for_each_document(). A pass fetches about batch_bytes of content, at least one
  // document. The order is document_order() of text/pack_rows.h over the documents of all files.
  DocumentPool(std::vector<std::filesystem::path> files, uint64_t seed, uint64_t batch_bytes = 64ull << 20);

  int64_t num_documents() const { return static_cast<int64_t>(order_.size()); }
  int64_t num_documents(size_t file_idx) const { return first_[file_idx + 1] - first_[file_idx]; }

  // The next document; nothing behind the last one. Error(kCorrupt) when a file holds fewer documents than at first.
  std::optional<Entry> next();

 private:
  struct Wanted {
    int64_t document_idx = 0;
    size_t slot = 0;  // of batch_
  };
  void fetch_batch();
  void fetch_from(size_t file_idx, std::span<const Wanted> wanted);  // ascending, all of this file

  std::vector<std::filesystem::path> files_;
  uint64_t batch_bytes_;
  std::vector<int64_t> first_;   // [files + 1], index of each file's first document, and the number of all
  std::vector<uint64_t> bytes_;  // of each document's content
  std::vector<int64_t> order_;
  size_t next_ = 0;          // position in order_ of the first document not yet fetched
  std::deque<Entry> batch_;  // fetched, in order
};

}  // namespace trefoil
