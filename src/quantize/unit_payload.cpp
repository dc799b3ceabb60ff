#include "quantize/unit_payload.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trefoil {
namespace {

using Json = nlohmann::json;

Json to_json(const MatrixRecord& m) {
  return {m.expert,
          static_cast<int>(m.part),
          m.tokens,
          m.n_eff,
          m.shrinkage,
          m.damping,
          m.loss,
          m.relative_error,
          m.weight_error,
          m.output_error,
          m.dead_columns,
          m.rounds_kept,
          m.negative_scales,
          m.fallback};
}

MatrixRecord matrix_of(const Json& json) {
  MatrixRecord m;
  m.expert = json.at(0).get<int64_t>();
  m.part = static_cast<ExpertPart>(json.at(1).get<int>());
  m.tokens = json.at(2).get<int64_t>();
  m.n_eff = json.at(3).get<double>();
  m.shrinkage = json.at(4).get<double>();
  m.damping = json.at(5).get<double>();
  m.loss = json.at(6).get<double>();
  m.relative_error = json.at(7).get<double>();
  m.weight_error = json.at(8).get<double>();
  m.output_error = json.at(9).get<double>();
  m.dead_columns = json.at(10).get<int64_t>();
  m.rounds_kept = json.at(11).get<int>();
  m.negative_scales = json.at(12).get<double>();
  m.fallback = json.at(13).get<std::string>();
  return m;
}

// [[seconds, operations]] by phase.
Json to_json(const PhaseTimes& times) {
  Json json = Json::array();
  for (const Phase phase : kPhases) json.push_back({times[phase].seconds, times[phase].flops});
  return json;
}

PhaseTimes times_of(const Json& json) {
  PhaseTimes times;
  for (const Phase phase : kPhases) {
    const Json& cost = json.at(static_cast<size_t>(phase));
    times.add(phase, {cost.at(0).get<double>(), cost.at(1).get<double>()});
  }
  return times;
}

}  // namespace

std::string to_payload(const SolvedExperts& solved) {
  Json matrices = Json::array();
  for (const MatrixRecord& matrix : solved.matrices) matrices.push_back(to_json(matrix));
  return Json{{"tokens_per_expert", solved.tokens_per_expert},
              {"matrices", std::move(matrices)},
              {"gate_up", to_json(solved.times.gate_up)},
              {"down", to_json(solved.times.down)}}
      .dump();
}

SolvedExperts parse_payload(const std::string& payload) {
  try {
    const Json json = Json::parse(payload);
    SolvedExperts solved;
    solved.tokens_per_expert = json.at("tokens_per_expert").get<std::vector<int64_t>>();
    for (const Json& matrix : json.at("matrices")) solved.matrices.push_back(matrix_of(matrix));
    solved.times = {times_of(json.at("gate_up")), times_of(json.at("down"))};
    return solved;
  } catch (const nlohmann::json::exception& wrong) {
    fail(ErrorCode::kCorrupt, "the record of a unit of experts: {}", wrong.what());
  }
}

}  // namespace trefoil
