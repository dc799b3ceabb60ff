#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/elementary.h"

namespace trefoil {
namespace {

// The id of the largest logit, after refusing what is no distribution.
size_t checked_argmax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      fail(ErrorCode::kCorrupt, "logit of id {} is {}: nothing can be sampled", i, logits[i]);
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (logits.empty() || logits[best] == -std::numeric_limits<float>::infinity()) {
    fail(ErrorCode::kCorrupt, "no id has a finite logit: nothing can be sampled");
  }
  return best;
}

void require(bool ok, const char* option, double value, const char* expected) {
  if (!ok) fail(ErrorCode::kInvalidArgument, "{} is {}, expected {}", option, value, expected);
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options) : options_(options), generator_(options.seed) {
  require(std::isfinite(options.temperature) && options.temperature >= 0, "--temperature", options.temperature,
          "a number >= 0");
  require(options.top_k >= 0, "--top-k", static_cast<double>(options.top_k), "0 (all) or more");
  require(options.top_p > 0 && options.top_p <= 1, "--top-p", options.top_p, "more than 0 and at most 1");
  require(options.min_p >= 0 && options.min_p <= 1, "--min-p", options.min_p, "0 to 1");
}

void Sampler::seek(int64_t position) {
  generator_ = SplitMix64(options_.seed + static_cast<uint64_t>(position) * SplitMix64::kStep);
}

int32_t Sampler::sample(std::span<const float> logits) {
  const size_t best = checked_argmax(logits);
  if (options_.temperature == 0) return static_cast<int32_t>(best);
  keep_most_probable(logits);
  const double largest = logits[best];
  for (Candidate& candidate : candidates_) {
    candidate.weight =
        exp_core(clamp_exponent((logits[static_cast<size_t>(candidate.id)] - largest) / options_.temperature));
  }
  cut_top_p();
  cut_min_p();
  return draw();
}

// Steps 1 and 2: candidates in descending order of logit, at most top_k of them.
void Sampler::keep_most_probable(std::span<const float> logits) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) candidates_.push_back({static_cast<int32_t>(i), 0});
  }
  size_t kept = candidates_.size();
  if (options_.top_k > 0) kept = std::min(kept, static_cast<size_t>(options_.top_k));
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(kept);
  std::partial_sort(candidates_.begin(), end, candidates_.end(), [&](const Candidate& a, const Candidate& b) {
    const float x = logits[static_cast<size_t>(a.id)];
    const float y = logits[static_cast<size_t>(b.id)];
    return x > y || (x == y && a.id < b.id);
  });
  candidates_.resize(kept);
}

// Step 3.
void Sampler::cut_top_p() {
  if (options_.top_p >= 1) return;
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates_.size() && sum < options_.top_p * total) sum += candidates_[kept++].weight;
  candidates_.resize(kept);
}

// Step 4. Weights descend and the first is the largest.
void Sampler::cut_min_p() {
  const double limit = options_.min_p * candidates_.front().weight;
  while (candidates_.back().weight < limit) candidates_.pop_back();
}

// Step 5: the first candidate at which the running sum passes the drawn point.
int32_t Sampler::draw() {
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const double point = generator_.next_uniform() * total;
  double sum = 0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (point < sum) return candidate.id;
  }
  return candidates_.back().id;  // rounding of the sum
}

}  // namespace trefoil
