#include "quantize/ledger.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/sha256.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLargestRecord = 1ull << 30;
constexpr uint64_t kPiece = 4ull << 20;
constexpr uint64_t kSummaryBytes = 1024;  // job, unit, by and seconds of a record take less
constexpr std::string_view kBehindSummary = ",\"ranges\":";

Json to_json(const UnitRecord& record, const std::string& job) {
  Json ranges = Json::array();
  for (const WrittenRange& range : record.ranges) {
    ranges.push_back(
        {{"file", range.file}, {"offset", range.offset}, {"bytes", range.bytes}, {"sha256", range.sha256}});
  }
  return {{"job", job},
          {"unit", record.unit},
          {"by", record.by},
          {"seconds", record.seconds},
          {"ranges", std::move(ranges)},
          {"payload", record.payload.empty() ? Json() : Json::parse(record.payload)}};
}

UnitRecord from_json(const Json& json) {
  UnitRecord record;
  record.unit = json.at("unit").get<std::string>();
  record.by = json.at("by").get<std::string>();
  record.seconds = json.at("seconds").get<double>();
  for (const Json& range : json.at("ranges")) {
    record.ranges.push_back({range.at("file").get<std::string>(), range.at("offset").get<uint64_t>(),
                             range.at("bytes").get<uint64_t>(), range.at("sha256").get<std::string>()});
  }
  if (!json.at("payload").is_null()) record.payload = json.at("payload").dump();
  return record;
}

}  // namespace

std::vector<std::string> units_in(const fs::path& ledger_folder, std::error_code& error) {
  std::vector<std::string> units;
  for (fs::directory_iterator entry(ledger_folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().extension() == ".json") units.push_back(entry->path().stem().string());
  }
  std::sort(units.begin(), units.end());
  return units;
}

Ledger::Ledger(fs::path folder, std::string job) : folder_(std::move(folder)), job_(std::move(job)) {
  make_folder(folder_);
}

bool Ledger::is_done(const std::string& unit) {
  const std::lock_guard lock(mutex_);
  if (done_.contains(unit)) return true;
  std::error_code error;
  if (!fs::exists(record_of(unit), error)) return false;
  done_.insert(unit);
  return true;
}

std::optional<UnitRecord> Ledger::find(const std::string& unit) const {
  try {
    const Json json = Json::parse(read_text_file(record_of(unit), kLargestRecord));
    if (json.at("job").get<std::string>() != job_ || json.at("unit").get<std::string>() != unit) return std::nullopt;
    return from_json(json);
  } catch (const Error& unreadable) {
    if (unreadable.code() == ErrorCode::kIo) throw;
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void Ledger::commit(const UnitRecord& record) {
  write_text_file(record_of(record.unit), to_json(record, job_).dump() + "\n");
  const std::lock_guard lock(mutex_);
  done_.insert(record.unit);
}

void Ledger::forget(const std::string& unit) {
  const std::lock_guard lock(mutex_);
  done_.erase(unit);
  std::error_code error;
  fs::remove(record_of(unit), error);
  if (error) fail(ErrorCode::kIo, "{}: cannot remove: {}", record_of(unit).string(), error.message());
}

std::vector<std::string> Ledger::units() const {
  std::error_code error;
  std::vector<std::string> units = units_in(folder_, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot list: {}", folder_.string(), error.message());
  return units;
}

std::optional<UnitSummary> read_unit_summary(const fs::path& record) {
  try {
    const InputFile file(record);
    std::string front(static_cast<size_t>(std::min(file.size(), kSummaryBytes)), ' ');
    file.read_at(0, std::as_writable_bytes(std::span(front)));
    const Json json = Json::parse(front.substr(0, front.find(kBehindSummary)) + "}");
    UnitSummary summary{
        json.at("unit").get<std::string>(), json.at("by").get<std::string>(), json.at("seconds").get<double>(), {}};
    std::error_code gone;
    const fs::file_time_type written = fs::last_write_time(record, gone);
    if (gone || summary.unit != record.stem()) return std::nullopt;
    summary.finished =
        std::chrono::time_point_cast<std::chrono::system_clock::duration>(fs::file_time_type::clock::to_sys(written));
    return summary;
  } catch (const Error&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool range_is_intact(const fs::path& folder, const WrittenRange& range) {
  try {
    const InputFile file(folder / range.file);
    Sha256 sum;
    std::vector<std::byte> buffer(static_cast<size_t>(std::min(range.bytes, kPiece)));
    for (uint64_t done = 0; done < range.bytes; done += kPiece) {
      const MutableBytes piece = MutableBytes(buffer).first(static_cast<size_t>(std::min(kPiece, range.bytes - done)));
      file.read_at(range.offset + done, piece);
      sum.update(piece);
    }
    return sum.hex() == range.sha256;
  } catch (const Error&) {
    return false;  // absent, shorter, unreadable: not what the record says
  }
}

}  // namespace trefoil
