#include "text/row_stream.h"

#include <algorithm>

#include "base/error.h"

namespace trefoil {

std::optional<std::vector<int32_t>> RowStream::next_row(int64_t row_length) {
  std::vector<int32_t> row;
  std::vector<Piece> pieces;
  const auto length = static_cast<size_t>(row_length);
  while (row.size() < length) {
    if (pos_ == ids_.size()) {
      if (!read_document()) return std::nullopt;
      continue;
    }
    const size_t count = std::min(length - row.size(), ids_.size() - pos_);
    row.insert(row.end(), ids_.begin() + static_cast<ptrdiff_t>(pos_),
               ids_.begin() + static_cast<ptrdiff_t>(pos_ + count));
    pos_ += count;
    pieces.push_back({current_->file_idx, current_->document.source, static_cast<int64_t>(count)});
  }
  count(pieces);
  return row;
}

bool RowStream::read_document() {
  current_ = pool_.next();
  if (!current_) return false;
  try {
    ids_ = document_ids(current_->document, tokenizer_);
  } catch (const Error& error) {
    fail(error.code(), "document {} ({}): {}", current_->document_idx + 1, current_->document.source, error.what());
  }
  pos_ = 0;
  ++documents_read_;
  ++documents_of_file_[current_->file_idx];
  ids_read_ += static_cast<int64_t>(ids_.size());
  return true;
}

void RowStream::count(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    tokens_of_file_[piece.file_idx] += piece.tokens;
    tokens_of_source_[piece.source] += piece.tokens;
  }
}

int64_t RowStream::documents_of_file(size_t file_idx) const {
  const auto found = documents_of_file_.find(file_idx);
  return found == documents_of_file_.end() ? 0 : found->second;
}

int64_t RowStream::tokens_of_file(size_t file_idx) const {
  const auto found = tokens_of_file_.find(file_idx);
  return found == tokens_of_file_.end() ? 0 : found->second;
}

}  // namespace trefoil
