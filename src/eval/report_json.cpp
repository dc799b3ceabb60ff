#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "eval/report.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

void put(Json& object, const std::string& name, const Estimate& estimate) {
  object[name] = estimate.value;
  object[name + "_se"] = estimate.standard_error;
}

Json to_json(const Facts& facts) {
  Json object = Json::object();
  for (const auto& [name, value] : facts) object[name] = value;
  return object;
}

Json to_json(const GroupSummary& group, bool kld, bool candidate) {
  Json object = {{"tokens", group.tokens}, {"rows", group.rows}};
  put(object["ppl"], "value", group.ppl);
  if (candidate) put(object["ppl"], "ln_ratio", group.ln_ppl_ratio);
  if (!kld) return object;
  put(object["kld"], "mean", group.kld);
  put(object["top1"], "agreement", group.top1);
  return object;
}

Json to_json(const std::vector<GroupSummary>& groups, bool kld, bool candidate) {
  Json object = Json::object();
  for (const GroupSummary& group : groups) object[group.name] = to_json(group, kld, candidate);
  return object;
}

Json tail_json(const std::vector<std::pair<double, double>>& tail) {
  Json array = Json::array();
  for (const auto& [share, kld] : tail) array.push_back({share, kld});
  return array;
}

Json to_json(const ReferenceSummary& reference) {
  Json object = {{"tokens", reference.tokens}, {"rows", reference.rows}};
  Json& ppl = object["ppl"];
  put(ppl, "value", reference.ppl);
  put(ppl, "nll", reference.nll);
  put(object, "entropy", reference.entropy);
  object["by_source"] = to_json(reference.by_source, false, false);
  return object;
}

void add_kld(Json& object, const CandidateSummary& candidate) {
  Json& kld = object["kld"];
  put(kld, "mean", candidate.kld);
  for (size_t i = 0; i < kKldQuantiles.size(); ++i) put(kld, kKldQuantiles[i].name, candidate.kld_quantiles[i]);
  kld["max"] = candidate.kld_max;
  put(object["top1"], "agreement", candidate.top1);
  put(object["top5"], "agreement", candidate.top5);
  put(object["delta_p"], "mean", candidate.delta_p_mean);
  put(object["delta_p"], "rms", candidate.delta_p_rms);
}

Json to_json(const CandidateSummary& candidate, bool kld) {
  Json object;
  Json& ppl = object["ppl"];
  put(ppl, "value", candidate.ppl);
  put(ppl, "nll", candidate.nll);
  put(ppl, "ratio", candidate.ppl_ratio);
  put(ppl, "ln_ratio", candidate.ln_ppl_ratio);
  ppl["nll_correlation"] = candidate.nll_correlation;
  if (kld) add_kld(object, candidate);
  object["by_source"] = to_json(candidate.by_source, kld, true);
  if (!kld) return object;
  object["by_position"] = to_json(candidate.by_position, kld, true);
  object["by_entropy"] = to_json(candidate.by_entropy, kld, true);
  object["kld_tail"] = tail_json(candidate.kld_tail);
  return object;
}

Json to_json(const PairSummary& pair, bool kld) {
  Json object = {{"first", pair.first}, {"second", pair.second}};
  put(object, "ln_ppl_difference", pair.ln_ppl_difference);
  if (!kld) return object;
  put(object, "kld_ratio", pair.kld_ratio);
  put(object, "kld_difference", pair.kld_difference);
  put(object, "top1_difference", pair.top1_difference);
  return object;
}

Json to_json(const NoiseSummary& noise) {
  Json object = {{"varied", noise.varied}, {"rows", noise.rows}, {"exact", noise.exact}};
  Json& kld = object["kld"];
  put(kld, "mean", noise.kld);
  kld["p99"] = noise.kld_p99;
  kld["max"] = noise.kld_max;
  put(object["ppl"], "ln_ratio", noise.ln_ppl_ratio);
  put(object["top1"], "agreement", noise.top1);
  object["kld_tail"] = tail_json(noise.kld_tail);
  return object;
}

Json to_json(const ErrorSpread& spread) {
  return {{"mean", spread.mean}, {"median", spread.median}, {"p95", spread.p95},
          {"p99", spread.p99},   {"max", spread.max},       {"count", spread.count}};
}

Json to_json(const WeightKindProbe& probe, const std::vector<int64_t>& layers) {
  Json object = {{"storage", probe.storage},
                 {"matrices", probe.matrices},
                 {"elements", probe.elements},
                 {"relative_rms", probe.relative_rms},
                 {"cosine", probe.cosine}};
  if (!probe.codes.empty()) {
    object["clipped_share"] = probe.clipped_share;
    object["scale_min"] = probe.scale_min;
    object["scale_max"] = probe.scale_max;
    object["negative_scale_share"] = probe.negative_scale_share;
    object["lowest_code"] = probe.lowest_code;
    object["codes"] = probe.codes;
  }
  Json by_layer = Json::object();
  for (size_t i = 0; i < probe.relative_rms_by_layer.size() && i < layers.size(); ++i) {
    by_layer[std::to_string(layers[i])] = probe.relative_rms_by_layer[i];
  }
  object["relative_rms_by_layer"] = by_layer;
  return object;
}

Json to_json(const IsolatedLayerProbe& probe) {
  return {{"w1", to_json(probe.w1)},
          {"w3", to_json(probe.w3)},
          {"hidden", to_json(probe.hidden)},
          {"expert_out", to_json(probe.expert_out)},
          {"expert_sum", to_json(probe.expert_sum)},
          {"normed_sum", to_json(probe.normed_sum)}};
}

Json to_json(const StreamLayerProbe& probe) {
  Json object = {{"relative_l2", probe.relative_l2}, {"cosine", probe.cosine}, {"residual", to_json(probe.residual)}};
  put(object, "topk_overlap", probe.topk_overlap);
  put(object, "top1_agreement", probe.top1_agreement);
  put(object, "router_kl", probe.router_kl);
  return object;
}

Json to_json(const ProbeSummary& probe) {
  Json object;
  Json& weights = object["weights"] = Json::object();
  for (const WeightKindProbe& kind : probe.weights) weights[kind.kind] = to_json(kind, probe.layers);
  Json& isolated = object["isolated"] = Json::object();
  for (const IsolatedLayerProbe& layer : probe.isolated) isolated[std::to_string(layer.layer)] = to_json(layer);
  Json& deciles = object["load_deciles"] = Json::object();
  for (const LoadDecileProbe& decile : probe.load_deciles) {
    deciles[std::to_string(decile.decile)] = {
        {"experts", decile.experts}, {"tokens", decile.tokens}, {"expert_out", to_json(decile.expert_out)}};
  }
  Json& stream = object["stream"] = Json::object();
  for (const StreamLayerProbe& layer : probe.stream) stream[std::to_string(layer.layer)] = to_json(layer);
  return object;
}

Json candidates_json(const EvalRecord& record) {
  Json object = Json::object();
  for (const CandidateSummary& candidate : record.candidates) {
    object[candidate.label] = to_json(candidate, record.has_kld());
  }
  for (const ProbeSummary& probe : record.probes) object[probe.label]["probe"] = to_json(probe);
  return object;
}

Json text_json(const EvalRecord& record) {
  Json files = Json::array();
  for (const TextFacts& text : record.texts) {
    files.push_back({{"file", text.file}, {"sha256", text.sha256}, {"documents", text.documents}});
  }
  return {{"files", files}, {"token_sha256", record.token_sha256}, {"sources", record.sources}};
}

Json models_json(const EvalRecord& record) {
  Json object = Json::object();
  for (const JudgedModel& model : record.models) {
    Json facts = {{"folder", model.folder},
                  {"config_sha256", model.config_sha256},
                  {"index_sha256", model.index_sha256},
                  {"experts", model.experts},
                  {"tensor_bytes", model.tensor_bytes}};
    if (!model.held_out.empty()) facts["held_out"] = model.held_out;
    object[model.label] = facts;
  }
  return object;
}

Json checks_json(const EvalRecord& record) {
  Json array = Json::array();
  for (const ConditionResult& check : record.checks) {
    array.push_back({{"fail_if", check.expression},
                     {"metric", check.metric},
                     {"value", check.value},
                     {"violated", check.violated}});
  }
  return array;
}

Json record_json(const EvalRecord& record) {
  Json root;
  root["format"] = "trefoil-eval-1";
  root["command"] = record.command;
  root["version"] = record.version;
  if (!record.date.empty()) root["date"] = record.date;
  root["settings"] = to_json(record.settings);
  root["machine"] = to_json(record.machine);
  root["text"] = text_json(record);
  root["models"] = models_json(record);
  root["reference"] = to_json(record.reference);
  root["candidates"] = candidates_json(record);
  Json& pairs = root["pairs"] = Json::object();
  for (const PairSummary& pair : record.pairs) {
    pairs[pair.second + "/" + pair.first] = to_json(pair, record.has_kld());
  }
  Json& noise = root["noise"] = Json::object();
  for (const NoiseSummary& row : record.noise) noise[row.name] = to_json(row);
  root["checks"] = checks_json(record);
  root["notes"] = record.notes;
  return root;
}

void collect(const Json& node, const std::string& path, std::vector<NamedValue>* values) {
  if (node.is_object()) {
    for (const auto& [key, child] : node.items()) collect(child, path.empty() ? key : path + "." + key, values);
  } else if (node.is_number() || node.is_null()) {
    values->push_back({path, node.is_null() ? kNoValue : node.get<double>()});
  }
}

}  // namespace

std::string report_json(const EvalRecord& record) {
  // names and text may hold bytes that are not UTF-8: shown as U+FFFD rather than refused
  return record_json(record).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<NamedValue> named_values(const EvalRecord& record) {
  std::vector<NamedValue> values;
  const Json root = record_json(record);
  for (const char* part : {"candidates", "reference", "pairs", "noise", "models"})
    collect(root.at(part), part, &values);
  return values;
}

}  // namespace trefoil
