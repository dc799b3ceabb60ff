#include "eval/held_out.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "checkpoint/file.h"
#include "checkpoint/folder_files.h"
#include "text/shared_runs.h"

namespace trefoil {
namespace {

using Json = nlohmann::json;

// All of the report but its per-matrix records, which can be large and are not needed.
Json read_report(const fs::path& file) {
  const auto keep = [](int depth, Json::parse_event_t event, Json& parsed) {
    return !(depth == 1 && event == Json::parse_event_t::key && parsed == Json("layers"));
  };
  try {
    return Json::parse(read_text_file(file), keep);
  } catch (const Json::exception& error) {
    fail(ErrorCode::kCorrupt, "{}: {}", file.string(), error.what());
  }
}

bool same_file(const Json& calibration, std::span<const TextFacts> files) {
  for (const Json& entry : calibration.value("files", Json::array())) {
    if (!entry.is_object()) continue;
    const Json sha256 = entry.value("sha256", Json());
    for (const TextFacts& file : files) {
      if (sha256 == Json(file.sha256)) return true;
    }
  }
  return false;
}

// Calibration rows as one stream: documents run on across rows.
std::vector<int32_t> calibration_ids(const Json& rows) {
  std::vector<int32_t> ids;
  for (const Json& row : rows) {
    for (const Json& id : row) {
      if (id.is_number_integer()) ids.push_back(id.get<int32_t>());
    }
  }
  return ids;
}

// Evaluation tokens that lie in a run of kSharedRun ids which calibration holds too.
int64_t shared_tokens(std::span<const int32_t> calibration, const EvalText& text) {
  constexpr auto kLength = static_cast<size_t>(kSharedRun);
  std::unordered_set<uint64_t> seen;
  for_each_run(calibration, kLength, [&](size_t /*end*/, uint64_t hash) { seen.insert(hash); });
  int64_t shared = 0;
  for (const EvalRow& row : text.rows) {
    shared += ids_in_shared_runs(row.ids, kLength, [&](uint64_t hash) { return seen.contains(hash); });
  }
  return shared;
}

}  // namespace

std::string held_out_verdict(const fs::path& folder, std::span<const TextFacts> files, const EvalText& text) {
  const fs::path file = folder / kReportFile;
  if (!fs::exists(file)) return fmt::format("unknown: no {}", kReportFile);
  const Json report = read_report(file);
  if (!report.is_object() || !report.contains("calibration")) return "no: it was not calibrated";
  const Json& calibration = report["calibration"];
  if (!calibration.is_object()) return fmt::format("unknown: {} does not say what was calibrated on", kReportFile);
  if (same_file(calibration, files)) return "yes: the same text file was calibrated on";
  if (!calibration.contains("token_ids")) return "unknown: no calibration token ids were recorded";
  const std::vector<int32_t> ids = calibration_ids(calibration["token_ids"]);
  if (static_cast<int64_t>(ids.size()) < kSharedRun) return "unknown: no calibration token ids were recorded";
  const int64_t shared = shared_tokens(ids, text);
  if (shared == 0) return fmt::format("no: no run of {} tokens is shared", kSharedRun);
  int64_t total = 0;
  for (const EvalRow& row : text.rows) total += static_cast<int64_t>(row.ids.size());
  const double share = static_cast<double>(shared) / static_cast<double>(total);
  return fmt::format("{}: {:.2f} % of the tokens lie in runs of {} or more that were calibrated on",
                     share >= 0.5 ? "yes" : "partly", 100 * share, kSharedRun);
}

}  // namespace trefoil
