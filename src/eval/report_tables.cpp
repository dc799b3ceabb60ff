#include "eval/report_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"

namespace trefoil {
namespace {

const JudgedModel* facts_of(const EvalRecord& record, const std::string& label) {
  const auto found = std::find_if(record.models.begin(), record.models.end(),
                                  [&](const JudgedModel& model) { return model.label == label; });
  return found == record.models.end() ? nullptr : &*found;
}

std::string size_of(const EvalRecord& record, const std::string& label) {
  const JudgedModel* facts = facts_of(record, label);
  return facts == nullptr ? "-" : format_gb(facts->tensor_bytes);
}

std::string experts_of(const EvalRecord& record, const std::string& label) {
  const JudgedModel* facts = facts_of(record, label);
  return facts == nullptr ? "-" : facts->experts;
}

std::string count(int64_t value) {
  return format_count(static_cast<uint64_t>(value));
}

std::string reference_label(const EvalRecord& record) {
  return record.models.empty() ? "original" : record.models.front().label;
}

std::string percent(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.2f}", 100 * share);
}

}  // namespace

const NoiseSummary* largest_noise(const EvalRecord& record) {
  const auto found =
      std::max_element(record.noise.begin(), record.noise.end(),
                       [](const NoiseSummary& a, const NoiseSummary& b) { return a.kld.value < b.kld.value; });
  return found == record.noise.end() ? nullptr : &*found;
}

ReportTable headline_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Result";
  const std::string reference = reference_label(record);
  if (record.has_kld()) {
    table.note = fmt::format("Against {} on {} tokens in {} rows. Mean ± standard error between rows; KLD in nats.",
                             reference, count(record.reference.tokens), record.reference.rows);
    table.header = {"model", "experts", "size", "mean KLD", "top-1 %", "top-5 %", "RMS Δp %", "PPL", "PPL ratio"};
    table.rows.push_back({reference, experts_of(record, reference), size_of(record, reference), "0", "100", "100", "0",
                          format_estimate(record.reference.ppl), "1"});
    for (const CandidateSummary& c : record.candidates) {
      table.rows.push_back({c.label, experts_of(record, c.label), size_of(record, c.label), format_estimate(c.kld),
                            format_percent(c.top1), format_percent(c.top5), format_percent(c.delta_p_rms),
                            format_estimate(c.ppl), format_estimate(c.ppl_ratio)});
    }
    return table;
  }
  table.note = fmt::format("On {} tokens in {} rows. Mean ± standard error between rows; the ratio's error is paired.",
                           count(record.reference.tokens), record.reference.rows);
  table.header = {"model", "experts", "size", "PPL", "mean NLL", "PPL ratio", "ln PPL ratio"};
  table.rows.push_back({reference, experts_of(record, reference), size_of(record, reference),
                        format_estimate(record.reference.ppl), format_estimate(record.reference.nll), "1", "0"});
  for (const CandidateSummary& c : record.candidates) {
    table.rows.push_back({c.label, experts_of(record, c.label), size_of(record, c.label), format_estimate(c.ppl),
                          format_estimate(c.nll), format_estimate(c.ppl_ratio), format_estimate(c.ln_ppl_ratio)});
  }
  return table;
}

ReportTable tail_table(const EvalRecord& record) {
  ReportTable table;
  if (!record.has_kld()) return table;
  table.title = "Distribution of the KL divergence";
  table.note =
      "Quantiles over tokens with bootstrap errors over rows; Δp is the change of the correct token's probability.";
  table.header = {"model", "median", "90 %", "95 %", "99 %", "99.9 %", "max", "mean Δp %", "NLL correlation"};
  for (const CandidateSummary& c : record.candidates) {
    std::vector<std::string> row = {c.label};
    for (const Estimate& quantile : c.kld_quantiles) row.push_back(format_estimate(quantile));
    row.push_back(format_number(c.kld_max));
    row.push_back(format_percent(c.delta_p_mean));
    row.push_back(format_number(c.nll_correlation));
    table.rows.push_back(row);
  }
  return table;
}

ReportTable pair_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Paired comparisons";
  table.note = "Second against first on the same tokens: most of the text's own variation cancels.";
  if (record.has_kld()) {
    table.header = {"second / first", "KLD ratio", "KLD difference", "ln PPL difference", "top-1 difference %"};
  } else {
    table.header = {"second / first", "ln PPL difference"};
  }
  for (const PairSummary& pair : record.pairs) {
    std::vector<std::string> row = {pair.second + " / " + pair.first};
    if (record.has_kld()) {
      row.insert(row.end(), {format_estimate(pair.kld_ratio), format_estimate(pair.kld_difference)});
    }
    row.push_back(format_estimate(pair.ln_ppl_difference));
    if (record.has_kld()) row.push_back(format_percent(pair.top1_difference));
    table.rows.push_back(row);
  }
  return table;
}

ReportTable noise_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Noise floor";
  table.note =
      "The reference against itself with one thing changed. \"exactly 0\" means that every logit's statistics agreed "
      "to "
      "the bit: the kernels do not depend on what was varied.";
  table.header = {"varied", "rows", "mean KLD", "99 %", "max", "ln PPL ratio", "top-1 %"};
  for (const NoiseSummary& noise : record.noise) {
    if (noise.exact) {
      table.rows.push_back({noise.varied, count(noise.rows), "exactly 0", "0", "0", "0", "100"});
    } else {
      table.rows.push_back({noise.varied, count(noise.rows), format_estimate(noise.kld), format_number(noise.kld_p99),
                            format_number(noise.kld_max), format_estimate(noise.ln_ppl_ratio),
                            format_percent(noise.top1)});
    }
  }
  return table;
}

ReportTable source_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "By source";
  if (record.has_kld()) {
    table.header = {"source", "model", "tokens", "mean KLD", "top-1 %", "PPL", "ln PPL ratio"};
  } else {
    table.header = {"source", "model", "tokens", "PPL", "ln PPL ratio"};
  }
  for (size_t s = 0; s < record.reference.by_source.size(); ++s) {
    const GroupSummary& reference = record.reference.by_source[s];
    std::vector<std::string> row = {reference.name, reference_label(record), count(reference.tokens)};
    if (record.has_kld()) row.insert(row.end(), {"0", "100"});
    row.insert(row.end(), {format_estimate(reference.ppl), "0"});
    table.rows.push_back(row);
    for (const CandidateSummary& candidate : record.candidates) {
      const GroupSummary& group = candidate.by_source[s];
      row = {group.name, candidate.label, count(group.tokens)};
      if (record.has_kld()) row.insert(row.end(), {format_estimate(group.kld), format_percent(group.top1)});
      row.insert(row.end(), {format_estimate(group.ppl), format_estimate(group.ln_ppl_ratio)});
      table.rows.push_back(row);
    }
  }
  return table;
}

ReportTable entropy_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "By the reference's certainty";
  table.note = "Quarters of the tokens by the entropy of the reference's prediction: q1 is where it is most certain.";
  table.header = {"entropy quarter", "model", "tokens", "mean KLD", "top-1 %", "ln PPL ratio"};
  if (!record.has_kld() || record.candidates.empty()) return table;
  for (size_t q = 0; q < record.candidates.front().by_entropy.size(); ++q) {
    for (const CandidateSummary& candidate : record.candidates) {
      const GroupSummary& group = candidate.by_entropy[q];
      table.rows.push_back({group.name, candidate.label, count(group.tokens), format_estimate(group.kld),
                            format_percent(group.top1), format_estimate(group.ln_ppl_ratio)});
    }
  }
  return table;
}

ReportTable weight_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Probe A: expert weights";
  table.note =
      "Candidate against reference, all probed experts of a kind together. Clipped: beyond the grid's end by more than "
      "half a step.";
  table.header = {"model",  "kind",      "storage",       "matrices",         "relative RMS",
                  "cosine", "clipped %", "|scale| range", "negative scales %"};
  for (const ProbeSummary& probe : record.probes) {
    for (const WeightKindProbe& kind : probe.weights) {
      const bool coded = !kind.codes.empty();
      table.rows.push_back({probe.label, kind.kind, kind.storage, count(kind.matrices),
                            format_number(kind.relative_rms), fmt::format("{:.6f}", kind.cosine),
                            coded ? percent(kind.clipped_share) : "-",
                            coded ? format_number(kind.scale_min) + " .. " + format_number(kind.scale_max) : "-",
                            coded ? percent(kind.negative_scale_share) : "-"});
    }
  }
  return table;
}

ReportTable isolated_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Probe B: one layer at a time";
  table.note =
      "The candidate's experts on the reference's inputs and routing: relative squared errors. u is the weighted sum "
      "over a "
      "token's experts; RMSNorm(u) is what the rest of the model sees.";
  table.header = {"model",  "layer", "w1 x", "w3 x", "hidden", "expert output", "u (total)", "RMSNorm(u) (total)",
                  "median", "p95",   "p99",  "max"};
  for (const ProbeSummary& probe : record.probes) {
    for (const IsolatedLayerProbe& layer : probe.isolated) {
      table.rows.push_back({probe.label, std::to_string(layer.layer), format_number(layer.w1.mean),
                            format_number(layer.w3.mean), format_number(layer.hidden.mean),
                            format_number(layer.expert_out.mean), format_number(layer.expert_sum.mean),
                            format_number(layer.normed_sum.mean), format_number(layer.normed_sum.median),
                            format_number(layer.normed_sum.p95), format_number(layer.normed_sum.p99),
                            format_number(layer.normed_sum.max)});
    }
  }
  return table;
}

ReportTable decile_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Probe B by expert load";
  table.note =
      "Expert output error by how many of the probe's tokens an expert received; decile 1 holds the least loaded "
      "experts.";
  table.header = {"model", "decile", "experts", "tokens", "total", "median", "p95", "p99", "max"};
  for (const ProbeSummary& probe : record.probes) {
    for (const LoadDecileProbe& decile : probe.load_deciles) {
      table.rows.push_back({probe.label, std::to_string(decile.decile + 1), count(decile.experts), count(decile.tokens),
                            format_number(decile.expert_out.mean), format_number(decile.expert_out.median),
                            format_number(decile.expert_out.p95), format_number(decile.expert_out.p99),
                            format_number(decile.expert_out.max)});
    }
  }
  return table;
}

ReportTable stream_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Probe C: both models on their own";
  table.note =
      "The residual stream after each layer (relative L2 over all tokens; relative squared error per token), and the "
      "routing in it. Router KL: over the reference's experts, "
      "renormalised.";
  table.header = {"model", "layer",  "relative L2",      "sq. error median", "p95",
                  "max",   "cosine", "expert overlap %", "top-1 expert %",   "router KL"};
  for (const ProbeSummary& probe : record.probes) {
    for (const StreamLayerProbe& layer : probe.stream) {
      table.rows.push_back({probe.label, std::to_string(layer.layer), format_number(layer.relative_l2),
                            format_number(layer.residual.median), format_number(layer.residual.p95),
                            format_number(layer.residual.max), fmt::format("{:.6f}", layer.cosine),
                            format_percent(layer.topk_overlap), format_percent(layer.top1_agreement),
                            format_estimate(layer.router_kl)});
    }
  }
  return table;
}

ReportTable check_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Conditions";
  table.header = {"fail if", "number", "value", "outcome"};
  for (const ConditionResult& check : record.checks) {
    table.rows.push_back({check.expression, check.metric, std::isnan(check.value) ? "none" : format_number(check.value),
                          check.violated ? "FAILED" : "passed"});
  }
  return table;
}

ReportTable model_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Models";
  table.note =
      "Held out: whether the evaluation documents are absent from the calibration that a model's own report records.";
  table.header = {"model", "folder", "tensor bytes", "config.json SHA-256", "index SHA-256", "held out"};
  for (const JudgedModel& model : record.models) {
    table.rows.push_back({model.label, model.folder, format_count(model.tensor_bytes), model.config_sha256,
                          model.index_sha256.empty() ? "-" : model.index_sha256,
                          model.held_out.empty() ? "-" : model.held_out});
  }
  return table;
}

ReportTable provenance_table(const EvalRecord& record) {
  ReportTable table;
  table.title = "Settings and machine";
  table.header = {"what", "value"};
  table.rows.push_back({"trefoil", record.version});
  if (!record.date.empty()) table.rows.push_back({"date", record.date});
  for (const auto& [name, value] : record.settings) table.rows.push_back({name, value});
  for (const auto& [name, value] : record.machine) table.rows.push_back({name, value});
  for (const TextFacts& text : record.texts) {
    table.rows.push_back({"text " + text.file, fmt::format("{} documents, SHA-256 {}", text.documents, text.sha256)});
  }
  table.rows.push_back({"token ids SHA-256", record.token_sha256});
  return table;
}

}  // namespace trefoil
