// Equal rows of token ids out of a pool of documents, and where the ids came from. The same rows as pack_rows() makes,
// without holding the documents.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/document_pool.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

class RowStream {
 public:
  RowStream(DocumentPool pool, const Tokenizer& tokenizer) : pool_(std::move(pool)), tokenizer_(tokenizer) {}

  // The next row_length ids: documents one after the other, running on across rows. Nothing when fewer are left; what
  // is left then counts as no file's. Errors as document_ids(), naming the document.
  std::optional<std::vector<int32_t>> next_row(int64_t row_length);

  const DocumentPool& pool() const { return pool_; }
  int64_t documents_read() const { return documents_read_; }
  int64_t ids_read() const { return ids_read_; }
  int64_t documents_of_file(size_t file_idx) const;  // of those read
  // Ids in rows so far, by file of the pool and by the documents' "source".
  int64_t tokens_of_file(size_t file_idx) const;
  const std::map<std::string, int64_t>& tokens_of_source() const { return tokens_of_source_; }

 private:
  struct Piece {  // of a row
    size_t file_idx = 0;
    std::string source;
    int64_t tokens = 0;
  };
  bool read_document();
  void count(const std::vector<Piece>& pieces);

  DocumentPool pool_;
  const Tokenizer& tokenizer_;
  std::optional<DocumentPool::Entry> current_;
  std::vector<int32_t> ids_;  // of current_
  size_t pos_ = 0;            // of the first id not yet in a row
  int64_t documents_read_ = 0;
  int64_t ids_read_ = 0;
  std::map<size_t, int64_t> documents_of_file_;
  std::map<size_t, int64_t> tokens_of_file_;
  std::map<std::string, int64_t> tokens_of_source_;
};

}  // namespace trefoil
