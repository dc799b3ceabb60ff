#include "eval/held_out.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "checkpoint/file.h"

namespace trefoil {
namespace {

using Json = nlohmann::json;

constexpr const char* kReportFile = "quantization_report.json";
constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;  // odd: 2^64 / golden ratio

// A polynomial hash over the last kSharedRun ids, updated in O(1).
class RunHash {
 public:
  RunHash() {
    for (int64_t i = 0; i < kSharedRun; ++i) out_factor_ *= kMultiplier;
  }
  void push(int32_t in) { hash_ = hash_ * kMultiplier + term(in); }
  void push(int32_t in, int32_t out) { hash_ = hash_ * kMultiplier + term(in) - out_factor_ * term(out); }
  uint64_t value() const { return hash_; }

 private:
  static uint64_t term(int32_t id) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(id)) + 1) * 0xD6E8FEB86659FD93ull;
  }
  uint64_t hash_ = 0;
  uint64_t out_factor_ = 1;
};

// Calls use(end, hash) for every run of kSharedRun ids ending before `end`.
template <typename Use>
void for_each_run(std::span<const int32_t> ids, const Use& use) {
  RunHash hash;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i < static_cast<size_t>(kSharedRun)) {
      hash.push(ids[i]);
    } else {
      hash.push(ids[i], ids[i - static_cast<size_t>(kSharedRun)]);
    }
    if (i + 1 >= static_cast<size_t>(kSharedRun)) use(i + 1, hash.value());
  }
}

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
  std::unordered_set<uint64_t> seen;
  for_each_run(calibration, [&](size_t /*end*/, uint64_t hash) { seen.insert(hash); });
  int64_t shared = 0;
  for (const EvalRow& row : text.rows) {
    size_t counted = 0;  // tokens before this are already counted
    for_each_run(row.ids, [&](size_t end, uint64_t hash) {
      if (seen.count(hash) == 0) return;
      const size_t begin = std::max(counted, end - static_cast<size_t>(kSharedRun));
      shared += static_cast<int64_t>(end - begin);
      counted = end;
    });
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
