// Runs a reference and any number of candidates over the same rows, side by side, and keeps a few numbers per token.
//
// Logits are never kept: a slice of the reference's (kLogitSliceBytes) is compared with the same slice of one candidate
// after the other and dropped. What remains is O(tokens) scalars. Results do not depend on threads, and on batch_rows
// and prefill_chunk only as far as the providers do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "eval/estimates.h"
#include "eval/eval_text.h"
#include "eval/logits_provider.h"
#include "trefoil/progress.h"

namespace trefoil {

// One entry per scored token.
struct CandidateTokens {
  std::vector<double> nll, kld, delta_p, top1, top5;  // nats, nats, probability, 0 or 1, share of five
};

struct ScoredTokens {
  int64_t num_rows = 0;
  std::vector<int32_t> row;       // which sequence
  std::vector<int32_t> source;    // of the predicted token
  std::vector<int32_t> position;  // of the predicted token in its row: 1 .. n-1
  std::vector<double> nll;        // reference, nats
  std::vector<double> entropy;    // reference, nats
  std::vector<CandidateTokens> candidates;

  int64_t tokens() const { return static_cast<int64_t>(row.size()); }
  TokenRows rows() const { return {row, num_rows}; }
};

struct CompareSettings {
  int64_t batch_rows = 8;          // sequences read together
  int64_t prefill_chunk = 0;       // tokens of each sequence read at a time; 0: the whole row
  std::string stage = "evaluate";  // what progress calls it
};

// Errors: kInvalidArgument for a row below two tokens, an id outside the vocabulary, or vocabularies that differ;
// kCorrupt for a logit that is not finite, naming model, row and position; whatever the providers throw.
ScoredTokens compare_models(const EvalText& text, LogitsProvider& reference,
                            std::span<LogitsProvider* const> candidates, const CompareSettings& settings,
                            ThreadPool& pool, ProgressSink& progress);

}  // namespace trefoil
