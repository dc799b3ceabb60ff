// Token rows to be scored, with the source of every token. docs/evaluation.md, "Text".
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "eval/eval_record.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

// One sequence. It starts from an empty state, and its tokens 1 .. n-1 are scored, each from all before it.
struct EvalRow {
  std::vector<int32_t> ids;     // [n], n >= 2
  std::vector<int32_t> source;  // [n], index into EvalText::sources: where each token comes from
};

struct EvalText {
  std::vector<EvalRow> rows;
  std::vector<std::string> sources;
  std::vector<std::vector<int32_t>> documents;  // ids of all, in order of sources, whether a row holds them or not

  int64_t scored_tokens() const {
    int64_t count = 0;
    for (const EvalRow& row : rows) count += static_cast<int64_t>(row.ids.size()) - 1;
    return count;
  }
};

struct EvalTextOptions {
  int64_t ctx_size = 512;
  bool per_document = false;  // rows begin with documents; else documents of one source run on across rows
  int64_t max_rows = 0;       // 0: all; else this many, evenly spread over all there are
};

struct LoadedText {
  EvalText text;
  std::vector<TextFacts> files;
  std::vector<std::string> notes;  // what was left out
};

// Documents (text/documents.h) to rows. Rows hold one source each, in order of the sources' first appearance.
//   packed:       the documents of a source are joined and cut into rows of exactly ctx_size ids, without padding or
//                 separators; the rest behind the last row is left out, as is a source that does not fill one row
//   per_document: a document is cut into rows of ctx_size ids, the last one shorter; a row of one id is left out
// Errors: kInvalidArgument for ctx_size < 2, no files, or text that gives no row; whatever reading documents throws.
LoadedText load_eval_text(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                          const EvalTextOptions& options);

// SHA-256 over all rows: each row's length and ids as little-endian int32. Two runs with the same hash scored the same
// tokens.
std::string token_hash(const EvalText& text);

}  // namespace trefoil
