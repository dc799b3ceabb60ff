// Documents to calibrate on and to evaluate on, from JSON lines or plain text, in memory bounded by the longest
// document. Files may be compressed: NAME.gz, NAME.zst.
//
// JSON lines: one object per line, `{"text": "..."}`, `{"input_ids": [1, 2, ...]}` or `{"messages": [...]}`, with an
// optional "source" text; other keys are ignored, blank lines are skipped, a byte order mark before the first line too.
// A line with messages is a conversation in the shape of parse_chat_request() (trefoil/chat.h), with its other keys
// ("tools", "thinking", ...); the opening of a next answer is added only where "add_generation_prompt" asks for it.
// Plain text: the file is one document. Every error names FILE:LINE. How documents become rows of ids:
// text/pack_rows.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/line_reader.h"
#include "trefoil/chat.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

struct Document {
  std::string source;              // "source" of the line, else the file's name
  std::string text;                // UTF-8; empty for the other two kinds
  std::vector<int32_t> input_ids;  // not negative; against a vocabulary only document_ids() checks them
  bool has_ids = false;
  std::vector<ChatSegment> segments = {};  // of a conversation

  uint64_t content_bytes() const;  // of whichever of the three it holds
};

enum class DocumentFormat {
  kAuto,  // by the extension before .gz or .zst: .jsonl, .ndjson and .json are JSON lines, the rest is plain text
  kJsonLines,
  kText,
};

struct DocumentOptions {
  DocumentFormat format = DocumentFormat::kAuto;
  uint64_t max_document_bytes = 1ull << 30;  // of a line, or of a plain text, uncompressed; more is refused
};

// The documents of a file, in order. Error(kCorrupt) for JSON that is malformed or of the wrong shape (more than one of
// "text", "input_ids" and "messages", none of them, a key twice, ids that are not integers from 0 to 2^31-1, a
// conversation that render_chat() refuses), for text that is not UTF-8, for a NUL byte or many control characters in plain text, for a line over the
// limit and for damaged or incomplete compressed data; Error(kUnsupported) for messages of unknown roles.
class DocumentReader {
 public:
  explicit DocumentReader(const std::filesystem::path& file, const DocumentOptions& options = {});
  ~DocumentReader();

  // Nothing behind the last document.
  std::optional<Document> next();
  // Passes over the next document without looking into it; false behind the last one.
  bool skip();

 private:
  bool next_line();  // that is not blank, into line_

  std::filesystem::path file_;
  DocumentOptions options_;
  std::unique_ptr<LineReader> lines_;  // null for plain text
  std::string line_;
  bool is_at_start_ = true;
};

// Calls `use` with each document; errors as above, and Error(kCorrupt) for a file without any document.
void for_each_document(const std::filesystem::path& file, const DocumentOptions& options,
                       const std::function<void(Document)>& use);
std::vector<Document> read_documents(const std::filesystem::path& file, const DocumentOptions& options = {});

// One line of JSON lines; `place` ("FILE:LINE") starts messages.
Document parse_document_line(std::string_view line, const std::string& place);

// Text is encoded in text mode, a conversation segment by segment, and input_ids are taken as they are:
// Error(kInvalidArgument) for one outside the vocabulary. Error(kUnsupported) as encode_chat().
std::vector<int32_t> document_ids(const Document& document, const Tokenizer& tokenizer);

}  // namespace trefoil
