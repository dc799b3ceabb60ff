#include "eval/eval_text.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "base/sha256.h"
#include "checkpoint/file.h"
#include "text/documents.h"
#include "text/pack_rows.h"

namespace trefoil {
namespace {

// The documents of one source, as ids.
struct SourceDocuments {
  std::string source;
  std::vector<Document> documents;
  int64_t num_ids = 0;
};

class TextLoader {
 public:
  TextLoader(const Tokenizer& tokenizer, const EvalTextOptions& options) : tokenizer_(tokenizer), options_(options) {}

  void add_file(const fs::path& file) {
    TextFacts facts{file.filename().string(), sha256_of_file(file), 0};
    for_each_document(file, {}, [&](Document document) {
      ++facts.documents;
      add_document(std::move(document));
    });
    loaded_.files.push_back(facts);
  }

  LoadedText finish() {
    for (SourceDocuments& source : sources_) {
      if (options_.per_document) {
        split_documents(source);
      } else {
        pack_source(source);
      }
      for (Document& document : source.documents) loaded_.text.documents.push_back(std::move(document.input_ids));
    }
    keep_some_rows();
    if (loaded_.text.rows.empty()) {
      fail(ErrorCode::kInvalidArgument, "the evaluation text does not fill one row of {} tokens", options_.ctx_size);
    }
    return std::move(loaded_);
  }

 private:
  void add_document(Document document) {
    auto found = std::find_if(sources_.begin(), sources_.end(),
                              [&](const SourceDocuments& s) { return s.source == document.source; });
    if (found == sources_.end()) found = sources_.insert(sources_.end(), {document.source, {}, 0});
    document = {document.source, {}, document_ids(document, tokenizer_), true, {}};
    found->num_ids += static_cast<int64_t>(document.input_ids.size());
    found->documents.push_back(std::move(document));
  }

  void add_row(std::span<const int32_t> ids, int32_t source) {
    loaded_.text.rows.push_back({{ids.begin(), ids.end()}, std::vector<int32_t>(ids.size(), source)});
  }

  int32_t new_source(const std::string& name) {
    loaded_.text.sources.push_back(name);
    return static_cast<int32_t>(loaded_.text.sources.size()) - 1;
  }

  void pack_source(const SourceDocuments& source) {
    if (source.num_ids < options_.ctx_size) {
      loaded_.notes.push_back(fmt::format("source '{}' was left out: its {} tokens do not fill a row of {}",
                                          source.source, source.num_ids, options_.ctx_size));
      return;
    }
    const PackedRows packed = pack_rows(source.documents, tokenizer_, {.seq_len = options_.ctx_size});
    const int32_t index = new_source(source.source);
    for (int64_t r = 0; r < packed.num_rows(); ++r) add_row(packed.row(r), index);
    dropped_ids_ += packed.dropped_ids;
  }

  void split_documents(const SourceDocuments& source) {
    const int32_t index = new_source(source.source);
    for (const Document& document : source.documents) {
      const std::span<const int32_t> ids = document.input_ids;
      for (size_t begin = 0; begin + 1 < ids.size(); begin += static_cast<size_t>(options_.ctx_size)) {
        add_row(ids.subspan(begin, std::min(ids.size() - begin, static_cast<size_t>(options_.ctx_size))), index);
      }
    }
  }

  void keep_some_rows() {
    std::vector<EvalRow>& rows = loaded_.text.rows;
    const size_t all = rows.size(), wanted = static_cast<size_t>(options_.max_rows);
    if (dropped_ids_ > 0) {
      loaded_.notes.push_back(fmt::format("{} tokens behind the last whole rows were left out", dropped_ids_));
    }
    if (wanted == 0 || wanted >= all) return;
    std::vector<EvalRow> kept;
    for (size_t k = 0; k < wanted; ++k) kept.push_back(std::move(rows[k * all / wanted]));
    rows = std::move(kept);
    loaded_.notes.push_back(fmt::format("{} of {} rows were scored, evenly spread", wanted, all));
  }

  const Tokenizer& tokenizer_;
  const EvalTextOptions& options_;
  std::vector<SourceDocuments> sources_;
  LoadedText loaded_;
  int64_t dropped_ids_ = 0;
};

}  // namespace

LoadedText load_eval_text(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                          const EvalTextOptions& options) {
  if (options.ctx_size < 2) {
    fail(ErrorCode::kInvalidArgument, "ctx size {}: a row needs at least 2 tokens", options.ctx_size);
  }
  if (options.max_rows < 0)
    fail(ErrorCode::kInvalidArgument, "max rows {}: not negative, 0 means all", options.max_rows);
  if (files.empty()) fail(ErrorCode::kInvalidArgument, "no evaluation text given");
  TextLoader loader(tokenizer, options);
  for (const fs::path& file : files) loader.add_file(file);
  return loader.finish();
}

std::string token_hash(const EvalText& text) {
  Sha256 hash;
  for (const EvalRow& row : text.rows) {
    const int32_t length = static_cast<int32_t>(row.ids.size());
    hash.update(std::as_bytes(std::span(&length, 1)));
    hash.update(std::as_bytes(std::span(row.ids)));
  }
  return hash.hex();
}

}  // namespace trefoil
