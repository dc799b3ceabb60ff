// Documents to calibrate on and to evaluate on, from JSON lines or plain text, in memory bounded by the longest
// document.
//
// JSON lines: one object per line, `{"text": "..."}` or `{"input_ids": [1, 2, ...]}`, with an optional "source" text;
// other keys are ignored, blank lines are skipped, a byte order mark before the first line too. Plain text: the file is
// one document. Every error names FILE:LINE. How documents become rows of ids: tokenizer/pack_rows.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

struct Document {
  std::string source;              // "source" of the line, else the file's name
  std::string text;                // UTF-8; empty when has_ids
  std::vector<int32_t> input_ids;  // not negative; against a vocabulary only pack_rows() checks them
  bool has_ids = false;
};

enum class DocumentFormat {
  kAuto,  // by the file's extension: .jsonl, .ndjson and .json are JSON lines, anything else is plain text
  kJsonLines,
  kText,
};

struct DocumentOptions {
  DocumentFormat format = DocumentFormat::kAuto;
  uint64_t max_document_bytes = 1ull << 30;  // of a line, or of a plain text file; more is refused
};

// Calls `use` with each document in file order. Error(kCorrupt) for JSON that is malformed or of the wrong shape (both
// "text" and "input_ids", neither, a key twice, ids that are not integers from 0 to 2^31-1), for text that is not
// UTF-8, for a NUL byte in plain text, for a line over the limit and for a file without any document;
// Error(kUnsupported) for "messages".
void for_each_document(const std::filesystem::path& file, const DocumentOptions& options,
                       const std::function<void(Document)>& use);
std::vector<Document> read_documents(const std::filesystem::path& file, const DocumentOptions& options = {});

// One line of JSON lines; `place` ("FILE:LINE") starts messages.
Document parse_document_line(std::string_view line, const std::string& place);

}  // namespace trefoil
