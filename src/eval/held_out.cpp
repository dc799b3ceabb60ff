#include "eval/held_out.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint/file.h"
#include "checkpoint/folder_files.h"
#include "text/shared_passages.h"

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

// Calibration rows, one after the other.
std::vector<int32_t> calibration_ids(const Json& rows) {
  std::vector<int32_t> ids;
  for (const Json& row : rows) {
    for (const Json& id : row) {
      if (id.is_number_integer()) ids.push_back(id.get<int32_t>());
    }
  }
  return ids;
}

std::string verdict_on(const SharedPassages& found) {
  const int64_t judged = found.documents;
  if (found.overlapping == 0)
    return fmt::format("no: none of {} documents shares a passage of {} tokens with the calibration", judged,
                       kSharedRun);
  return fmt::format("{}: {} of {} documents share a passage of {} tokens with the calibration; {} of {} tokens",
                     2 * found.shared_tokens >= found.tokens ? "yes" : "partly", found.overlapping, judged, kSharedRun,
                     format_count(static_cast<uint64_t>(found.shared_tokens)),
                     format_count(static_cast<uint64_t>(found.tokens)));
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
  std::vector<int32_t> ids = calibration_ids(calibration["token_ids"]);
  if (ids.empty()) return "unknown: no calibration token ids were recorded";
  PassageFinder finder(std::move(ids), 1);
  SharedPassages found;
  for (const std::vector<int32_t>& document : text.documents) finder.judge(document, &found);
  return verdict_on(found);
}

}  // namespace trefoil
