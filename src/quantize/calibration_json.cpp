#include "quantize/calibration_json.h"

#include "base/error.h"
#include "text/shared_runs.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxSources = 100;  // of which the report lists the largest

Json files_json(const CalibrationSet& calibration) {
  Json files = Json::array();
  for (const CalibrationFile& file : calibration.files) {
    Json json = {{"name", file.name},
                 {"bytes", file.bytes},
                 {"documents", file.documents},
                 {"tokens", file.tokens},
                 {"sha256", file.sha256}};
    if (file.documents_used) json["documents_used"] = *file.documents_used;
    if (file.weight) json["weight"] = *file.weight;
    files.push_back(std::move(json));
  }
  return files;
}

Json sources_json(const CalibrationSet& calibration) {
  Json sources = Json::array();
  int64_t other_tokens = 0;
  for (const CalibrationOrigin& origin : calibration.sources) {
    if (sources.size() < kMaxSources) {
      sources.push_back({{"source", origin.source}, {"tokens", origin.tokens}});
    } else {
      other_tokens += origin.tokens;
    }
  }
  if (other_tokens > 0) sources.push_back({{"source", "(all others)"}, {"tokens", other_tokens}});
  return sources;
}

Json held_out_json(const HeldOutOverlap& overlap) {
  Json files = Json::array();
  for (const HeldOutFile& file : overlap.files) {
    const SharedPassages& found = file.passages;
    files.push_back({{"name", file.name},
                     {"sha256", file.sha256},
                     {"documents", found.documents},
                     {"documents_too_short", found.too_short},
                     {"documents_overlapping", found.overlapping},
                     {"documents_contained", found.contained},
                     {"tokens", found.tokens},
                     {"shared_tokens", found.shared_tokens}});
  }
  return {{"run_length", kSharedRun}, {"rows_overlapping", overlap.rows}, {"files", std::move(files)}};
}

int64_t count_at(const Json& object, const char* key) {
  const Json& value = object.at(key);
  constexpr uint64_t kMost = INT64_MAX;
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost) {
    fail(ErrorCode::kCorrupt, "what it says about its calibration: \"{}\" is no count", key);
  }
  return value.get<int64_t>();
}

}  // namespace

Json calibration_json(const CalibrationSet& calibration) {
  Json scripts = Json::object();
  for (const ScriptShare& script : calibration.scripts) scripts[script.script] = script.share;
  Json json = {{"files", files_json(calibration)},
               {"sources", sources_json(calibration)},
               {"documents_used", calibration.documents_used},
               {"rows", calibration.rows.size()},
               {"row_length", calibration.row_length},
               {"tokens", calibration.num_tokens()},
               {"scripts", std::move(scripts)},
               {"token_ids_sha256", calibration.token_ids_sha256}};
  if (calibration.frozen) json["frozen"] = {{"name", calibration.frozen->name}, {"sha256", calibration.frozen->sha256}};
  if (calibration.held_out) json["held_out"] = held_out_json(*calibration.held_out);
  return json;
}

void read_calibration_json(std::string_view text, CalibrationSet* calibration) {
  try {
    const Json json = Json::parse(text);
    for (const Json& file : json.at("files")) {
      CalibrationFile& read = calibration->files.emplace_back();
      file.at("name").get_to(read.name);
      read.bytes = static_cast<uint64_t>(count_at(file, "bytes"));
      read.documents = count_at(file, "documents");
      read.tokens = count_at(file, "tokens");
      file.at("sha256").get_to(read.sha256);
      if (file.contains("documents_used")) read.documents_used = count_at(file, "documents_used");
      if (file.contains("weight")) read.weight = file.at("weight").get<double>();
    }
    for (const Json& origin : json.at("sources")) {
      calibration->sources.push_back({origin.at("source").get<std::string>(), count_at(origin, "tokens")});
    }
    calibration->documents_used = count_at(json, "documents_used");
  } catch (const Json::exception& error) {
    fail(ErrorCode::kCorrupt, "what it says about its calibration: {}", error.what());
  }
}

}  // namespace trefoil
