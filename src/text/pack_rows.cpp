#include "text/pack_rows.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/sha256.h"
#include "base/splitmix64.h"

namespace trefoil {
namespace {

// Uniform in [0, limit).
uint64_t below(uint64_t limit, SplitMix64& random) {
  const uint64_t biased = -limit % limit;
  while (true) {
    const auto product = static_cast<unsigned __int128>(random.next()) * limit;
    if (static_cast<uint64_t>(product) >= biased) return static_cast<uint64_t>(product >> 64);
  }
}

void append_ids(const Document& document, int64_t document_idx, const Tokenizer& tokenizer, std::vector<int32_t>* ids) {
  try {
    const std::vector<int32_t> encoded = document_ids(document, tokenizer);
    ids->insert(ids->end(), encoded.begin(), encoded.end());
  } catch (const Error& error) {
    fail(error.code(), "document {} ({}): {}", document_idx + 1, document.source, error.what());
  }
}

}  // namespace

std::vector<int64_t> document_order(int64_t count, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (seed == 0) return order;
  SplitMix64 random(seed);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(i, random)]);
  return order;
}

PackedRows pack_rows(std::span<const Document> documents, const Tokenizer& tokenizer, const PackOptions& options) {
  if (options.seq_len < 1) fail(ErrorCode::kInvalidArgument, "sequence length {}: must be at least 1", options.seq_len);
  if (options.max_rows < 0)
    fail(ErrorCode::kInvalidArgument, "number of sequences {}: must not be negative", options.max_rows);
  PackedRows rows;
  rows.seq_len = options.seq_len;
  for (const int64_t i : document_order(static_cast<int64_t>(documents.size()), options.seed)) {
    if (options.max_rows != 0 && rows.num_rows() >= options.max_rows) break;
    append_ids(documents[static_cast<size_t>(i)], i, tokenizer, &rows.ids);
    ++rows.num_documents;
  }
  const auto num_ids = static_cast<int64_t>(rows.ids.size());
  const int64_t num_rows = options.max_rows == 0 ? rows.num_rows() : std::min(rows.num_rows(), options.max_rows);
  if (num_rows == 0) {
    fail(ErrorCode::kInvalidArgument, "{} documents hold {} token ids, less than one sequence of {}", documents.size(),
         num_ids, options.seq_len);
  }
  rows.dropped_ids = num_ids - num_rows * options.seq_len;
  rows.ids.resize(static_cast<size_t>(num_rows * options.seq_len));
  rows.sha256 = sha256_hex(std::as_bytes(std::span(rows.ids)));
  return rows;
}

}  // namespace trefoil
