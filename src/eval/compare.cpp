#include "eval/compare.h"

#include <algorithm>

#include "base/error.h"
#include "eval/token_stats.h"

namespace trefoil {
namespace {

constexpr int64_t kLogitSliceBytes = int64_t{64} << 20;

// Where one token that was just read leads: which entry of the table its logits fill.
struct SliceToken {
  int64_t entry = -1;  // -1: the row's last token, nothing to predict
  int32_t target = 0;
  int64_t row = 0;
  int64_t position = 0;  // of the token itself
};

class Comparison {
 public:
  Comparison(const EvalText& text, LogitsProvider& reference, std::span<LogitsProvider* const> candidates,
             const CompareSettings& settings, ThreadPool& pool)
      : text_(text), reference_(reference), candidates_(candidates), settings_(settings), pool_(pool) {
    check_input();
    prepare_table();
  }

  ScoredTokens run(ProgressSink& progress) {
    const int64_t rows = static_cast<int64_t>(text_.rows.size());
    const int64_t batch = std::max<int64_t>(1, settings_.batch_rows);
    for (int64_t begin = 0; begin < rows; begin += batch) {
      progress.update(settings_.stage, begin, rows);
      run_batch(begin, std::min(rows, begin + batch));
    }
    progress.update(settings_.stage, rows, rows);
    return std::move(table_);
  }

 private:
  void check_input() const;
  void prepare_table();
  void run_batch(int64_t row_begin, int64_t row_end);
  void compare_piece(int64_t row_begin, int64_t row_end, int64_t position, int64_t chunk);
  void compare_slice(std::span<const SliceToken> tokens, int64_t begin);
  void check_finite(const LogitsProvider& model, std::span<const float> logits, const SliceToken& token) const;

  const EvalText& text_;
  LogitsProvider& reference_;
  std::span<LogitsProvider* const> candidates_;
  const CompareSettings& settings_;
  ThreadPool& pool_;
  ScoredTokens table_;
  std::vector<int64_t> first_entry_;  // of each row
};

void Comparison::check_input() const {
  const int64_t vocab = reference_.vocab_size();
  for (const LogitsProvider* candidate : candidates_) {
    if (candidate->vocab_size() != vocab) {
      fail(ErrorCode::kInvalidArgument, "{}: vocabulary of {}, but {} has {}", candidate->label(),
           candidate->vocab_size(), reference_.label(), vocab);
    }
  }
  for (size_t r = 0; r < text_.rows.size(); ++r) {
    const EvalRow& row = text_.rows[r];
    if (row.ids.size() < 2) {
      fail(ErrorCode::kInvalidArgument, "row {}: {} token(s), scoring needs at least 2", r, row.ids.size());
    }
    for (const int32_t id : row.ids) {
      if (id < 0 || id >= vocab) {
        fail(ErrorCode::kInvalidArgument, "row {}: token id {} outside the vocabulary of {}", r, id, vocab);
      }
    }
  }
}

void Comparison::prepare_table() {
  table_.num_rows = static_cast<int64_t>(text_.rows.size());
  for (size_t r = 0; r < text_.rows.size(); ++r) {
    const EvalRow& row = text_.rows[r];
    first_entry_.push_back(table_.tokens());
    for (size_t position = 1; position < row.ids.size(); ++position) {
      table_.row.push_back(static_cast<int32_t>(r));
      table_.source.push_back(row.source[position]);
      table_.position.push_back(static_cast<int32_t>(position));
    }
  }
  const size_t tokens = static_cast<size_t>(table_.tokens());
  table_.nll.resize(tokens);
  table_.entropy.resize(tokens);
  table_.candidates.resize(candidates_.size());
  for (CandidateTokens& c : table_.candidates) {
    for (std::vector<double>* column : {&c.nll, &c.kld, &c.delta_p, &c.top1, &c.top5}) column->resize(tokens);
  }
}

void Comparison::run_batch(int64_t row_begin, int64_t row_end) {
  reference_.start(row_begin, row_end - row_begin);
  for (LogitsProvider* candidate : candidates_) candidate->start(row_begin, row_end - row_begin);
  int64_t longest = 0;
  for (int64_t r = row_begin; r < row_end; ++r) {
    longest = std::max(longest, static_cast<int64_t>(text_.rows[static_cast<size_t>(r)].ids.size()));
  }
  const int64_t chunk = settings_.prefill_chunk > 0 ? settings_.prefill_chunk : longest;
  for (int64_t position = 0; position < longest; position += chunk) compare_piece(row_begin, row_end, position, chunk);
}

// Reads tokens [position, position + chunk) of every row of the batch and compares what comes out.
void Comparison::compare_piece(int64_t row_begin, int64_t row_end, int64_t position, int64_t chunk) {
  std::vector<std::span<const int32_t>> pieces;
  std::vector<SliceToken> tokens;
  for (int64_t r = row_begin; r < row_end; ++r) {
    const std::vector<int32_t>& ids = text_.rows[static_cast<size_t>(r)].ids;
    const int64_t size = static_cast<int64_t>(ids.size());
    const int64_t begin = std::min(position, size), end = std::min(position + chunk, size);
    pieces.push_back(std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    for (int64_t p = begin; p < end; ++p) {
      const bool scored = p + 1 < size;
      tokens.push_back(
          {scored ? first_entry_[static_cast<size_t>(r)] + p : -1, scored ? ids[static_cast<size_t>(p + 1)] : 0, r, p});
    }
  }
  reference_.advance(pieces);
  for (LogitsProvider* candidate : candidates_) candidate->advance(pieces);

  const int64_t row_bytes = reference_.vocab_size() * static_cast<int64_t>(sizeof(float));
  const int64_t slice = std::max<int64_t>(1, kLogitSliceBytes / row_bytes);
  const int64_t count = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < count; begin += slice) {
    const int64_t end = std::min(count, begin + slice);
    compare_slice(std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), begin);
  }
}

void Comparison::compare_slice(std::span<const SliceToken> tokens, int64_t begin) {
  const size_t vocab = static_cast<size_t>(reference_.vocab_size());
  const int64_t count = static_cast<int64_t>(tokens.size());
  const std::vector<float> expected = reference_.logits(begin, count);
  const auto row_of = [vocab](const std::vector<float>& logits, int64_t i) {
    return std::span<const float>(logits).subspan(static_cast<size_t>(i) * vocab, vocab);
  };
  pool_.parallel_for(count, [&](int64_t i) {
    const SliceToken& token = tokens[static_cast<size_t>(i)];
    check_finite(reference_, row_of(expected, i), token);
    if (token.entry < 0) return;
    const TokenScore score = score_token(row_of(expected, i), token.target);
    table_.nll[static_cast<size_t>(token.entry)] = score.nll;
    table_.entropy[static_cast<size_t>(token.entry)] = score.entropy;
  });
  for (size_t c = 0; c < candidates_.size(); ++c) {
    const std::vector<float> found = candidates_[c]->logits(begin, count);
    CandidateTokens& columns = table_.candidates[c];
    pool_.parallel_for(count, [&](int64_t i) {
      const SliceToken& token = tokens[static_cast<size_t>(i)];
      check_finite(*candidates_[c], row_of(found, i), token);
      if (token.entry < 0) return;
      const size_t entry = static_cast<size_t>(token.entry);
      TokenScore reference_score, score;
      const TokenComparison result =
          compare_token(row_of(expected, i), row_of(found, i), token.target, &reference_score, &score);
      columns.nll[entry] = score.nll;
      columns.kld[entry] = result.kld;
      columns.delta_p[entry] = result.delta_p;
      columns.top1[entry] = result.same_top1 ? 1 : 0;
      columns.top5[entry] = result.top5_overlap;
    });
  }
}

void Comparison::check_finite(const LogitsProvider& model, std::span<const float> logits,
                              const SliceToken& token) const {
  if (const std::optional<int64_t> bad = first_non_finite(logits)) {
    fail(ErrorCode::kCorrupt, "{}: logit {} is not finite at row {} position {}", model.label(), *bad, token.row,
         token.position);
  }
}

}  // namespace

ScoredTokens compare_models(const EvalText& text, LogitsProvider& reference,
                            std::span<LogitsProvider* const> candidates, const CompareSettings& settings,
                            ThreadPool& pool, ProgressSink& progress) {
  return Comparison(text, reference, candidates, settings, pool).run(progress);
}

}  // namespace trefoil
