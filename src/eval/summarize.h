// From per-token numbers to the figures of a report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/compare.h"
#include "eval/eval_record.h"

namespace trefoil {

struct SummarySettings {
  uint64_t seed = 1;
  int bootstrap_replicates = 1000;
  bool kld = true;  // false: perplexity only
};

ReferenceSummary summarize_reference(const ScoredTokens& table, const std::vector<std::string>& sources);

CandidateSummary summarize_candidate(const ScoredTokens& table, size_t candidate, const std::string& label,
                                     const std::vector<std::string>& sources, const SummarySettings& settings);

PairSummary summarize_pair(const ScoredTokens& table, size_t first, size_t second);

NoiseSummary summarize_noise(const ScoredTokens& table, size_t candidate);

// The names by_position and by_entropy use for a table, in order: "1-15", "16-31", ... and "entropy q1" .. "q4".
std::vector<std::string> position_bucket_names(int64_t longest_row);

}  // namespace trefoil
