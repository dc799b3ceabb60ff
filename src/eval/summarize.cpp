#include "eval/summarize.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace trefoil {
namespace {

constexpr int64_t kFirstBucketEnd = 16;  // positions 1-15, 16-31, 32-63, 64-127, ...
constexpr int kEntropyGroups = 4;

using Member = std::vector<uint8_t>;

Estimate ppl_of(const Estimate& nll) {
  return transformed(nll, std::exp(nll.value), std::exp(nll.value));
}

std::vector<double> difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

int64_t bucket_of(int64_t position) {
  if (position < kFirstBucketEnd) return 0;
  return std::bit_width(static_cast<uint64_t>(position / kFirstBucketEnd));
}

// Which group each token is in, and what the groups are called.
struct Grouping {
  std::vector<std::string> names;
  std::vector<int32_t> group;
};

Grouping group_by_source(const ScoredTokens& table, const std::vector<std::string>& sources) {
  return {sources, table.source};
}

Grouping group_by_position(const ScoredTokens& table) {
  Grouping grouping;
  int64_t longest = 0;
  for (const int32_t position : table.position) {
    grouping.group.push_back(static_cast<int32_t>(bucket_of(position)));
    longest = std::max<int64_t>(longest, position + 1);
  }
  grouping.names = position_bucket_names(longest);
  return grouping;
}

// Quarters of the tokens by the reference's entropy: where it is sure, and where it hesitates.
Grouping group_by_entropy(const ScoredTokens& table) {
  const std::vector<double> levels = {0.25, 0.5, 0.75};
  const std::vector<double> cuts = quantiles(table.entropy, levels);
  Grouping grouping;
  for (int q = 1; q <= kEntropyGroups; ++q) grouping.names.push_back(fmt::format("q{}", q));
  for (const double entropy : table.entropy) {
    grouping.group.push_back(
        static_cast<int32_t>(std::count_if(cuts.begin(), cuts.end(), [&](double cut) { return entropy > cut; })));
  }
  return grouping;
}

GroupSummary summarize_group(const ScoredTokens& table, const CandidateTokens* candidate, const std::string& name,
                             const Member& member, bool kld) {
  GroupSummary summary;
  summary.name = name;
  for (const double count : count_by_row(table.rows(), member)) {
    summary.tokens += static_cast<int64_t>(count);
    summary.rows += count > 0;
  }
  const std::vector<double>& nll = candidate != nullptr ? candidate->nll : table.nll;
  summary.ppl = ppl_of(mean_by_row(table.rows(), nll, member));
  if (candidate == nullptr) return summary;
  summary.ln_ppl_ratio = mean_by_row(table.rows(), difference(candidate->nll, table.nll), member);
  if (!kld) return summary;
  summary.kld = mean_by_row(table.rows(), candidate->kld, member);
  summary.top1 = mean_by_row(table.rows(), candidate->top1, member);
  return summary;
}

std::vector<GroupSummary> summarize_groups(const ScoredTokens& table, const CandidateTokens* candidate,
                                           const Grouping& grouping, bool kld) {
  std::vector<GroupSummary> result;
  Member member(grouping.group.size());
  for (size_t g = 0; g < grouping.names.size(); ++g) {
    for (size_t i = 0; i < member.size(); ++i) member[i] = grouping.group[i] == static_cast<int32_t>(g);
    result.push_back(summarize_group(table, candidate, grouping.names[g], member, kld));
  }
  return result;
}

// Shares from 1 down to one token, evenly spaced in the logarithm, eight to a factor of ten.
std::vector<std::pair<double, double>> tail_of(std::span<const double> kld) {
  std::vector<double> shares, levels;
  const double smallest = 1.0 / static_cast<double>(std::max<size_t>(kld.size(), 1));
  for (int step = 1;; ++step) {
    const double share = std::pow(10.0, -step / 8.0);
    if (share < smallest) break;
    shares.push_back(share);
    levels.push_back(1.0 - share);
  }
  const std::vector<double> values = quantiles(kld, levels);
  std::vector<std::pair<double, double>> tail;
  for (size_t i = 0; i < shares.size(); ++i) tail.emplace_back(shares[i], values[i]);
  return tail;
}

double max_of(std::span<const double> values) {
  return values.empty() ? kNoValue : *std::max_element(values.begin(), values.end());
}

void summarize_kld(const ScoredTokens& table, const CandidateTokens& tokens, const SummarySettings& settings,
                   CandidateSummary* summary) {
  const TokenRows rows = table.rows();
  summary->kld = mean_by_row(rows, tokens.kld);
  std::vector<double> levels;
  for (const QuantileLevel& quantile : kKldQuantiles) levels.push_back(quantile.level);
  const std::vector<Estimate> found =
      quantiles_by_row(rows, tokens.kld, levels, settings.seed, settings.bootstrap_replicates);
  std::copy(found.begin(), found.end(), summary->kld_quantiles.begin());
  summary->kld_max = max_of(tokens.kld);
  summary->kld_tail = tail_of(tokens.kld);
  summary->top1 = mean_by_row(rows, tokens.top1);
  summary->top5 = mean_by_row(rows, tokens.top5);
  summary->delta_p_mean = mean_by_row(rows, tokens.delta_p);
  std::vector<double> squares = tokens.delta_p;
  for (double& value : squares) value *= value;
  const Estimate mean_square = mean_by_row(rows, squares);
  const double rms = std::sqrt(mean_square.value);
  summary->delta_p_rms = transformed(mean_square, rms, rms > 0 ? 0.5 / rms : 0.0);
  summary->by_position = summarize_groups(table, &tokens, group_by_position(table), true);
  summary->by_entropy = summarize_groups(table, &tokens, group_by_entropy(table), true);
}

}  // namespace

std::vector<std::string> position_bucket_names(int64_t longest_row) {
  std::vector<std::string> names;
  for (int64_t begin = 1, end = kFirstBucketEnd; begin < longest_row; begin = end, end *= 2) {
    names.push_back(fmt::format("{}-{}", begin, std::min(end, longest_row) - 1));
  }
  return names;
}

ReferenceSummary summarize_reference(const ScoredTokens& table, const std::vector<std::string>& sources) {
  ReferenceSummary summary;
  summary.tokens = table.tokens();
  summary.rows = table.num_rows;
  summary.nll = mean_by_row(table.rows(), table.nll);
  summary.ppl = ppl_of(summary.nll);
  summary.entropy = mean_by_row(table.rows(), table.entropy);
  summary.by_source = summarize_groups(table, nullptr, group_by_source(table, sources), false);
  return summary;
}

CandidateSummary summarize_candidate(const ScoredTokens& table, size_t candidate, const std::string& label,
                                     const std::vector<std::string>& sources, const SummarySettings& settings) {
  const CandidateTokens& tokens = table.candidates[candidate];
  CandidateSummary summary;
  summary.label = label;
  summary.nll = mean_by_row(table.rows(), tokens.nll);
  summary.ppl = ppl_of(summary.nll);
  summary.ln_ppl_ratio = mean_by_row(table.rows(), difference(tokens.nll, table.nll));
  summary.ppl_ratio = ppl_of(summary.ln_ppl_ratio);
  summary.nll_correlation = correlation(tokens.nll, table.nll);
  summary.by_source = summarize_groups(table, &tokens, group_by_source(table, sources), settings.kld);
  if (settings.kld) summarize_kld(table, tokens, settings, &summary);
  return summary;
}

PairSummary summarize_pair(const ScoredTokens& table, size_t first, size_t second) {
  const TokenRows rows = table.rows();
  const CandidateTokens& a = table.candidates[first];
  const CandidateTokens& b = table.candidates[second];
  PairSummary pair;
  pair.kld_ratio = ratio_of_sums(sum_by_row(rows, b.kld), sum_by_row(rows, a.kld));
  pair.kld_difference = mean_by_row(rows, difference(b.kld, a.kld));
  pair.ln_ppl_difference = mean_by_row(rows, difference(b.nll, a.nll));
  pair.top1_difference = mean_by_row(rows, difference(b.top1, a.top1));
  return pair;
}

NoiseSummary summarize_noise(const ScoredTokens& table, size_t candidate) {
  const CandidateTokens& tokens = table.candidates[candidate];
  NoiseSummary noise;
  noise.rows = table.num_rows;
  noise.kld = mean_by_row(table.rows(), tokens.kld);
  noise.ln_ppl_ratio = mean_by_row(table.rows(), difference(tokens.nll, table.nll));
  noise.top1 = mean_by_row(table.rows(), tokens.top1);
  const std::vector<double> level = {0.99};
  noise.kld_p99 = quantiles(tokens.kld, level)[0];
  noise.kld_max = max_of(tokens.kld);
  noise.kld_tail = tail_of(tokens.kld);
  noise.exact = noise.kld_max == 0 && tokens.nll == table.nll;
  return noise;
}

}  // namespace trefoil
