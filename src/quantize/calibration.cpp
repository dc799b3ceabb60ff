#include "quantize/calibration.h"

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "base/sha256.h"
#include "checkpoint/file.h"
#include "quantize/frozen_calibration.h"
#include "text/row_stream.h"
#include "trefoil/tokenizer.h"

namespace trefoil {
namespace {

constexpr int64_t kShortestUsefulRow = 16;  // tokens: the shortest that is used without a word

// Rows from several streams in the proportion of their weights.
class RowMixer {
 public:
  RowMixer(const QuantizeOptions& options, const Tokenizer& tokenizer) : options_(options) {
    const bool is_weighted = std::any_of(options.calibration.begin(), options.calibration.end(),
                                         [](const CalibrationSource& source) { return source.weight.has_value(); });
    std::vector<fs::path> files;
    for (const CalibrationSource& source : options.calibration) {
      files.push_back(source.file);
      if (!is_weighted) continue;
      add_stream(std::move(files), source.weight.value_or(1), tokenizer);
      files.clear();
    }
    if (!is_weighted) add_stream(std::move(files), std::nullopt, tokenizer);
  }

  CalibrationSet mix(ProgressSink& progress) {
    CalibrationSet set;
    set.row_length = options_.max_seq_length;
    while (static_cast<int64_t>(set.rows.size()) < options_.num_calibration_samples) {
      Stream* stream = furthest_behind();
      if (stream == nullptr) break;
      auto row = stream->rows.next_row(set.row_length);
      if (!row) {
        stream->is_used_up = true;
        continue;
      }
      ++stream->num_rows;
      set.rows.push_back(std::move(*row));
    }
    require_rows(set);
    for (const Stream& stream : streams_) describe(stream, &set);
    std::stable_sort(set.sources.begin(), set.sources.end(),
                     [](const auto& a, const auto& b) { return a.tokens > b.tokens; });
    note_missed_shares(set, progress);
    return set;
  }

 private:
  struct Stream {
    RowStream rows;
    std::vector<fs::path> files;
    std::optional<double> weight;
    int64_t num_rows = 0;
    bool is_used_up = false;
  };

  void add_stream(std::vector<fs::path> files, std::optional<double> weight, const Tokenizer& tokenizer) {
    streams_.push_back({RowStream(DocumentPool(files, options_.seed), tokenizer), files, weight});
  }

  // Sainte-Lague's rule: the next row goes where (rows + 1/2) / weight is least, the earlier file on a tie. Null when
  // every stream is used up.
  Stream* furthest_behind() {
    Stream* best = nullptr;
    double least = 0;
    for (Stream& stream : streams_) {
      if (stream.is_used_up) continue;
      const double place = (static_cast<double>(stream.num_rows) + 0.5) / stream.weight.value_or(1);
      if (best != nullptr && place >= least) continue;
      best = &stream;
      least = place;
    }
    return best;
  }

  void require_rows(const CalibrationSet& set) const {
    if (!set.rows.empty()) return;
    int64_t documents = 0, ids = 0;
    for (const Stream& stream : streams_) {
      documents += stream.rows.pool().num_documents();
      ids += stream.rows.ids_read();
    }
    fail(ErrorCode::kInvalidArgument, "{} documents hold {} token ids, {} less than one row of {} (--max-seq-length)",
         documents, ids, streams_.size() == 1 ? "which is" : "every file", set.row_length);
  }

  void describe(const Stream& stream, CalibrationSet* set) const {
    for (size_t i = 0; i < stream.files.size(); ++i) {
      const fs::path& file = stream.files[i];
      set->files.push_back({file.filename().string(), fs::file_size(file), sha256_of_file(file),
                            stream.rows.pool().num_documents(i), stream.rows.documents_of_file(i),
                            stream.rows.tokens_of_file(i), stream.weight});
    }
    set->documents_used += stream.rows.documents_read();
    for (const auto& [source, tokens] : stream.rows.tokens_of_source()) {
      const auto known = std::find_if(set->sources.begin(), set->sources.end(),
                                      [&, name = source](const auto& origin) { return origin.source == name; });
      if (known == set->sources.end()) {
        set->sources.push_back({source, tokens});
      } else {
        known->tokens += tokens;
      }
    }
  }

  void note_missed_shares(const CalibrationSet& set, ProgressSink& progress) const {
    if (streams_.size() < 2) return;
    double all_weights = 0;
    for (const Stream& stream : streams_) all_weights += *stream.weight;
    for (const Stream& stream : streams_) {
      if (!stream.is_used_up) continue;
      progress.note(fmt::format("{} is used up: {:.1f} % of the calibration rows are from it, asked for were {:.1f} %",
                                stream.files.front().filename().string(),
                                100.0 * static_cast<double>(stream.num_rows) / static_cast<double>(set.rows.size()),
                                100.0 * *stream.weight / all_weights));
    }
  }

  const QuantizeOptions& options_;
  std::vector<Stream> streams_;
};

void check_vocabulary(const CalibrationSet& set, const ModelConfig& config) {
  for (const std::vector<int32_t>& row : set.rows) {
    const auto outside =
        std::find_if(row.begin(), row.end(), [&](int32_t id) { return id < 0 || id >= config.vocab_size; });
    if (outside == row.end()) continue;
    fail(ErrorCode::kCorrupt, "calibration token id {}: the tokenizer has it, the model's vocabulary of {} has not",
         *outside, config.vocab_size);
  }
}

std::vector<ScriptShare> scripts_of(const CalibrationSet& set, const Tokenizer& tokenizer) {
  ScriptCounter counter;
  for (const auto& row : set.rows) counter.add(tokenizer.decode(row, SpecialTokens::kSkip));
  return counter.shares();
}

void note_short_text(const CalibrationSet& set, const QuantizeOptions& options, ProgressSink& progress) {
  if (set.row_length < kShortestUsefulRow) {
    progress.note(
        fmt::format("rows of {} tokens (--max-seq-length): hardly a token sees what comes before it, so this "
                    "calibrates for text that nobody reads; 2048 is usual",
                    set.row_length));
  }
  const auto rows = static_cast<int64_t>(set.rows.size());
  if (rows >= options.num_calibration_samples) return;
  progress.note(fmt::format("the calibration text fills {} of {} rows of {} tokens", rows,
                            options.num_calibration_samples, options.max_seq_length));
}

void judge_overlap(const HeldOutOverlap& overlap, bool is_refused, ProgressSink& progress) {
  for (const HeldOutFile& file : overlap.files) {
    const SharedPassages& found = file.passages;
    if (found.overlapping == 0) continue;
    const std::string message =
        fmt::format("held-out {}: {} of {} documents share a passage with the calibration text ({} as a whole)",
                    file.name, found.overlapping, found.documents, found.contained);
    if (is_refused) fail(ErrorCode::kInvalidArgument, "{}", message);
    progress.note(message);
  }
}

}  // namespace

std::string hash_of_rows(const std::vector<std::vector<int32_t>>& rows) {
  Sha256 hash;
  for (const auto& row : rows) hash.update(std::as_bytes(std::span(row)));
  return hash.hex();
}

CalibrationSet load_calibration(const QuantizeOptions& options, const ModelConfig& config, ProgressSink& progress) {
  const Tokenizer tokenizer = Tokenizer::load(options.source);
  const TokenizerIdentity identity = tokenizer_identity(tokenizer, options.source);
  CalibrationSet set = is_frozen_calibration(options) ? load_frozen_calibration(options, identity)
                                                      : RowMixer(options, tokenizer).mix(progress);
  check_vocabulary(set, config);
  set.token_ids_sha256 = hash_of_rows(set.rows);
  set.scripts = scripts_of(set, tokenizer);
  note_short_text(set, options, progress);
  if (!options.held_out.empty()) {
    set.held_out = find_overlap(set.rows, options.held_out, tokenizer);
    judge_overlap(*set.held_out, options.refuse_overlap, progress);
  }
  if (!options.save_calibration.empty()) save_frozen_calibration(set, options, identity);
  return set;
}

}  // namespace trefoil
