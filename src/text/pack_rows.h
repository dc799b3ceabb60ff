// Documents -> equal rows of token ids: concatenated and cut, without padding, masks or tokens in between.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/documents.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

struct PackOptions {
  int64_t seq_len = 0;   // ids in a row, at least 1
  int64_t max_rows = 0;  // stop after so many rows; 0: all there are
  uint64_t seed = 0;     // 0: documents in file order; else document_order()
};

struct PackedRows {
  int64_t seq_len = 0;
  std::vector<int32_t> ids;   // [num_rows, seq_len]
  int64_t num_documents = 0;  // that gave ids to a row, were empty, or ended up in the leftover
  int64_t dropped_ids = 0;    // leftover behind the last whole row, of the documents counted
  std::string sha256;         // of `ids` as little-endian u32

  int64_t num_rows() const { return ids.empty() ? 0 : static_cast<int64_t>(ids.size()) / seq_len; }
  std::span<const int32_t> row(int64_t row_idx) const {
    return std::span(ids).subspan(static_cast<size_t>(row_idx * seq_len), static_cast<size_t>(seq_len));
  }
};

// Text is encoded in text mode, each document on its own; input_ids are taken as they are. num_rows() is less than
// max_rows when the documents hold less. Error(kInvalidArgument) for options that make no sense, for documents that do
// not fill one row, and for an id outside the vocabulary (naming the document).
PackedRows pack_rows(std::span<const Document> documents, const Tokenizer& tokenizer, const PackOptions& options);

// A permutation of 0 to count-1, the same everywhere and for ever. Seed 0: the identity. Else Fisher-Yates from the
// end, i = count-1 down to 1, swapping i with the high word of random * (i + 1), where the randoms are splitmix64 from
// `seed` and those whose low word is below 2^64 mod (i + 1) are skipped (Lemire 2019: no bias).
std::vector<int64_t> document_order(int64_t count, uint64_t seed);

}  // namespace trefoil
