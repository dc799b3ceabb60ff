// Everything one evaluation found, as plain data: what the JSON, Markdown and HTML reports are written from.
// docs/evaluation.md says what each number means. Unless a field says otherwise: nats, and errors by sequence.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "eval/estimates.h"

namespace trefoil {

// The part of the tokens that share a source, a position range, or a range of the reference's entropy.
struct GroupSummary {
  std::string name;
  int64_t tokens = 0;
  int64_t rows = 0;  // sequences with at least one such token
  Estimate ppl, ln_ppl_ratio, kld, top1;
};

struct ReferenceSummary {
  int64_t tokens = 0;
  int64_t rows = 0;
  Estimate nll, ppl, entropy;
  std::vector<GroupSummary> by_source;  // only ppl is set
};

// Levels reported for the KL divergence; the median is the first.
struct QuantileLevel {
  const char* name;
  double level;
};
constexpr std::array<QuantileLevel, 5> kKldQuantiles = {
    {{"median", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}}};

// One candidate against the reference. The KL fields are unset in an `eval ppl` run.
struct CandidateSummary {
  std::string label;
  Estimate nll, ppl;
  Estimate ln_ppl_ratio;  // paired: mean of candidate nll - reference nll
  Estimate ppl_ratio;     // exp of it
  double nll_correlation = kNoValue;
  Estimate kld;
  std::array<Estimate, kKldQuantiles.size()> kld_quantiles;
  double kld_max = kNoValue;
  Estimate top1, top5;                 // shares
  Estimate delta_p_mean, delta_p_rms;  // of the correct token's probability
  std::vector<GroupSummary> by_source, by_position, by_entropy;
  // The tail: shares of tokens, and the KL divergence that this share exceeds. Descending shares.
  std::vector<std::pair<double, double>> kld_tail;
};

// Two candidates on the same tokens: `second` compared with `first`.
struct PairSummary {
  std::string first, second;
  Estimate kld_ratio;       // mean KLD of second / mean KLD of first
  Estimate kld_difference;  // second - first
  Estimate ln_ppl_difference;
  Estimate top1_difference;
};

// The reference against itself with one thing changed.
struct NoiseSummary {
  std::string name;    // "chunks"
  std::string varied;  // what differs from the judged run, in words
  int64_t rows = 0;
  bool exact = false;  // every KLD is exactly 0 and every nll equal
  Estimate kld, ln_ppl_ratio, top1;
  double kld_p99 = kNoValue, kld_max = kNoValue;
  std::vector<std::pair<double, double>> kld_tail;
};

// Spread of a per-token error. mean is the ratio of summed squares: total error energy over total energy.
struct ErrorSpread {
  int64_t count = 0;
  double mean = kNoValue, median = kNoValue, p95 = kNoValue, p99 = kNoValue, max = kNoValue;
};

// Probe A: the routed experts' weights of one kind ("w1", "w2", "w3"), candidate against reference.
struct WeightKindProbe {
  std::string kind;
  std::string storage;  // "mxfp4", "int3 dense g64"
  int64_t matrices = 0, elements = 0;
  double relative_rms = kNoValue;  // ||W - Q|| / ||W||
  double cosine = kNoValue;
  std::vector<int64_t> codes;  // histogram, lowest code first; empty when the storage has no integer codes
  int64_t lowest_code = 0;
  double clipped_share = kNoValue;                    // |W / scale| beyond the end of the grid by more than half a step
  double scale_min = kNoValue, scale_max = kNoValue;  // of |scale|
  double negative_scale_share = kNoValue;
  std::vector<double> relative_rms_by_layer;  // aligned with ProbeSummary::layers
};

// Probe B: one MoE layer, candidate's experts fed with the reference's inputs and routing. Relative squared errors.
struct IsolatedLayerProbe {
  int64_t layer = 0;
  ErrorSpread w1, w3, hidden, expert_out;  // per (token, expert)
  ErrorSpread expert_sum, normed_sum;      // per token: u, and RMSNorm(u) with the layer's routed_expert_norm
};

// Probe B by how many probe tokens an expert received, all layers together. Decile 0 is the least loaded tenth.
constexpr int64_t kLoadDeciles = 10;
struct LoadDecileProbe {
  int64_t decile = 0, experts = 0, tokens = 0;
  ErrorSpread expert_out;
};

// Probe C: both models run on their own; where the streams are after one layer.
struct StreamLayerProbe {
  int64_t layer = 0;
  ErrorSpread residual;           // relative squared error of the residual stream (the running prefix) per token
  double relative_l2 = kNoValue;  // sqrt of residual.mean
  double cosine = kNoValue;       // mean over tokens
  Estimate topk_overlap, top1_agreement;  // routing; unset for dense layers
  Estimate router_kl;                     // KL of the renormalised expert weights over the reference's experts
};

struct ProbeSummary {
  std::string label;
  std::vector<int64_t> layers;  // MoE layers
  std::vector<WeightKindProbe> weights;
  std::vector<IsolatedLayerProbe> isolated;
  std::vector<LoadDecileProbe> load_deciles;
  std::vector<StreamLayerProbe> stream;
};

struct JudgedModel {
  std::string label, folder;  // the folder's own name, not its path
  std::string config_sha256, index_sha256;
  std::string experts;        // how the routed experts are stored: "mxfp4 g32", "int3 dense g64"
  uint64_t tensor_bytes = 0;  // all tensors
  // Whether evaluation documents were calibrated on: "no", "yes: ...", "unknown: ...". Empty for the reference.
  std::string held_out;
};

struct TextFacts {
  std::string file;  // name only
  std::string sha256;
  int64_t documents = 0;
};

// One --fail-if condition after the run.
struct ConditionResult {
  std::string expression;
  std::string metric;  // the full name it was applied to
  double value = kNoValue;
  bool violated = false;
};

using Facts = std::vector<std::pair<std::string, std::string>>;

struct EvalRecord {
  std::string command;  // "ppl", "kld", "probe"
  std::string version, date;
  Facts settings, machine;
  std::vector<TextFacts> texts;
  std::string token_sha256;
  std::vector<std::string> sources;
  std::vector<JudgedModel> models;  // reference first
  ReferenceSummary reference;
  std::vector<CandidateSummary> candidates;
  std::vector<PairSummary> pairs;
  std::vector<NoiseSummary> noise;
  std::vector<ProbeSummary> probes;
  std::vector<ConditionResult> checks;
  std::vector<std::string> notes;

  bool has_kld() const { return command == "kld"; }
};

}  // namespace trefoil
