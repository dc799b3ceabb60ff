#include "text/documents.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "checkpoint/text_stream.h"
#include "tokenizer/utf8.h"

namespace trefoil {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kLeastTextPerControl = 20;  // bytes to each control character; terminal recordings have more
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string parse_string(dom::element value, std::string_view key, const std::string& place) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) fail(ErrorCode::kCorrupt, "{}: \"{}\" is not a string", place, key);
  return std::string(text);
}

std::vector<int32_t> parse_ids(dom::element value, const std::string& place) {
  dom::array array;
  if (value.get(array) != simdjson::SUCCESS) fail(ErrorCode::kCorrupt, "{}: \"input_ids\" is not an array", place);
  std::vector<int32_t> ids;
  for (const dom::element element : array) {
    int64_t id = -1;
    if (element.get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX) {
      fail(ErrorCode::kCorrupt, "{}: \"input_ids\"[{}] is not an integer from 0 to {}", place, ids.size(), INT32_MAX);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

bool is_json_lines(const fs::path& file, DocumentFormat format) {
  if (format != DocumentFormat::kAuto) return format == DocumentFormat::kJsonLines;
  const fs::path extension = uncompressed_name(file).extension();
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

int64_t line_at(std::string_view text, size_t offset) {
  int64_t line = 1;
  for (const char c : text.substr(0, offset)) line += c == '\n';
  return line;
}

// Bytes below a blank that no text has, but for what moves along a line or to the next one.
bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != '\v';
}

Document read_text_document(const fs::path& file, uint64_t max_bytes) {
  Document document;
  document.source = file.filename().string();
  document.text = read_text_stream(file, max_bytes);
  if (document.text.empty()) fail(ErrorCode::kCorrupt, "{}: the file is empty", file.string());
  if (const size_t at = find_invalid_utf8(document.text); at != std::string::npos) {
    fail(ErrorCode::kCorrupt, "{}:{}: not UTF-8: byte {:#04x} at offset {}", file.string(), line_at(document.text, at),
         static_cast<uint8_t>(document.text[at]), at);
  }
  // English in UTF-16 is well-formed UTF-8 full of NULs, and so is a damaged file.
  if (const size_t at = document.text.find('\0'); at != std::string::npos) {
    fail(ErrorCode::kCorrupt, "{}:{}: a NUL byte at offset {}; is this UTF-16, or not text?", file.string(),
         line_at(document.text, at), at);
  }
  const auto controls = static_cast<size_t>(std::count_if(document.text.begin(), document.text.end(), is_control));
  if (controls > document.text.size() / kLeastTextPerControl) {
    fail(ErrorCode::kCorrupt, "{}: {} of its {} bytes are control characters; is this text?", file.string(), controls,
         document.text.size());
  }
  return document;
}

std::vector<ChatSegment> parse_conversation(std::string_view line, const std::string& place) {
  try {
    return render_chat(parse_chat_request(line, {.add_generation_prompt = false}));
  } catch (const Error& error) {
    const ErrorCode code = error.code() == ErrorCode::kUnsupported ? error.code() : ErrorCode::kCorrupt;
    fail(code, "{}: {}", place, error.what());
  }
}

}  // namespace

uint64_t Document::content_bytes() const {
  uint64_t bytes = text.size() + input_ids.size() * sizeof(int32_t);
  for (const ChatSegment& segment : segments) bytes += segment.text.size();
  return bytes;
}

Document parse_document_line(std::string_view line, const std::string& place) {
  dom::parser parser;
  dom::element root;
  dom::object object;
  const simdjson::padded_string padded(line);
  if (const auto error = parser.parse(padded).get(root); error != simdjson::SUCCESS) {
    fail(ErrorCode::kCorrupt, "{}: not JSON: {}", place, simdjson::error_message(error));
  }
  if (root.get(object) != simdjson::SUCCESS) {
    fail(ErrorCode::kCorrupt, "{}: expected an object such as {{\"text\": \"...\"}}", place);
  }
  Document document;
  bool has_text = false, has_source = false, has_messages = false;
  const auto claim = [&](bool* seen, std::string_view key) {
    if (*seen) fail(ErrorCode::kCorrupt, "{}: the key \"{}\" occurs twice", place, key);
    *seen = true;
  };
  for (const dom::key_value_pair field : object) {
    if (field.key == "text") {
      claim(&has_text, field.key);
      document.text = parse_string(field.value, field.key, place);
    } else if (field.key == "input_ids") {
      claim(&document.has_ids, field.key);
      document.input_ids = parse_ids(field.value, place);
    } else if (field.key == "source") {
      claim(&has_source, field.key);
      document.source = parse_string(field.value, field.key, place);
    } else if (field.key == "messages") {
      claim(&has_messages, field.key);
    }
  }
  const int contents = int{has_text} + int{document.has_ids} + int{has_messages};
  if (contents > 1) {
    fail(ErrorCode::kCorrupt, "{}: has more than one of \"text\", \"input_ids\" and \"messages\"; which one counts?",
         place);
  }
  if (contents == 0) {
    fail(ErrorCode::kCorrupt, "{}: has neither \"text\" nor \"input_ids\" nor \"messages\"", place);
  }
  if (has_messages) document.segments = parse_conversation(line, place);
  return document;
}

DocumentReader::DocumentReader(const fs::path& file, const DocumentOptions& options) : file_(file), options_(options) {
  if (is_json_lines(file, options.format)) lines_ = std::make_unique<LineReader>(file, options.max_document_bytes);
}

DocumentReader::~DocumentReader() = default;

std::optional<Document> DocumentReader::next() {
  if (!lines_) return skip() ? std::optional(read_text_document(file_, options_.max_document_bytes)) : std::nullopt;
  if (!next_line()) return std::nullopt;
  Document document = parse_document_line(line_, lines_->place());
  if (document.source.empty()) document.source = file_.filename().string();
  return document;
}

bool DocumentReader::skip() {
  return lines_ ? next_line() : std::exchange(is_at_start_, false);
}

bool DocumentReader::next_line() {
  while (lines_->next(&line_)) {
    if (std::exchange(is_at_start_, false) && line_.starts_with(kByteOrderMark)) line_.erase(0, kByteOrderMark.size());
    if (!is_blank(line_)) return true;
  }
  return false;
}

void for_each_document(const fs::path& file, const DocumentOptions& options, const std::function<void(Document)>& use) {
  DocumentReader reader(file, options);
  bool has_documents = false;
  for (auto document = reader.next(); document; document = reader.next()) {
    has_documents = true;
    use(std::move(*document));
  }
  if (!has_documents) fail(ErrorCode::kCorrupt, "{}: holds no document", file.string());
}

std::vector<Document> read_documents(const fs::path& file, const DocumentOptions& options) {
  std::vector<Document> documents;
  for_each_document(file, options, [&](Document document) { documents.push_back(std::move(document)); });
  return documents;
}

std::vector<int32_t> document_ids(const Document& document, const Tokenizer& tokenizer) {
  if (!document.segments.empty()) return encode_chat(tokenizer, document.segments);
  if (!document.has_ids) return tokenizer.encode(document.text, EncodeMode::kText);
  for (const int32_t id : document.input_ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) {
      fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}", id, tokenizer.vocab_size());
    }
  }
  return document.input_ids;
}

}  // namespace trefoil
