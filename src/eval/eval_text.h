// Token rows to be scored, with the source of every token. docs/evaluation.md, "Text".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trefoil {

// One sequence. It starts from an empty state, and its tokens 1 .. n-1 are scored, each from all before it.
struct EvalRow {
  std::vector<int32_t> ids;     // [n], n >= 2
  std::vector<int32_t> source;  // [n], index into EvalText::sources: where each token comes from
};

struct EvalText {
  std::vector<EvalRow> rows;
  std::vector<std::string> sources;

  int64_t scored_tokens() const {
    int64_t count = 0;
    for (const EvalRow& row : rows) count += static_cast<int64_t>(row.ids.size()) - 1;
    return count;
  }
};

// SHA-256 over all rows: each row's length and ids as little-endian int32. Two runs with the same hash scored the same
// tokens.
std::string token_hash(const EvalText& text);

}  // namespace trefoil
