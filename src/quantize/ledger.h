// What a job has finished, on disk: one small file for each unit of work, under its final name only when whole.
//
//   FOLDER/<unit>.json   {"job", "unit", "by", "seconds", "ranges": [{"file", "offset", "bytes", "sha256"}],
//                         "payload": ...}
//
// A record says which bytes of which files the unit wrote and what they hash to. It is a claim: audit_walk() holds it against
// the files before anybody relies on it, and a record that does not parse, is of another job, or does not match what is
// on disk is forgotten, so that its unit is done again. docs/quantization.md, "Stopping and resuming".
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint/file.h"

namespace trefoil {

// Bytes [offset, offset + bytes) of `file`, a path relative to the folder that the ledger's user names.
struct WrittenRange {
  std::string file;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string sha256;
};

struct UnitRecord {
  std::string unit;  // "L003.experts.00064": letters, digits, dots and dashes
  double seconds = 0;
  std::vector<WrittenRange> ranges;
  std::string payload;  // JSON, the unit's own
  std::string by;       // the process that did it: this_process()
};

// What a record says of a unit beside its results.
struct UnitSummary {
  std::string unit;
  std::string by;
  double seconds = 0;
  std::chrono::system_clock::time_point finished;
};

// Safe to use from several threads.
class Ledger {
 public:
  // `folder` is made. `job` is the digest of what the results depend on.
  Ledger(fs::path folder, std::string job);

  const fs::path& folder() const { return folder_; }
  fs::path record_of(const std::string& unit) const { return folder_ / (unit + ".json"); }
  // Whether a record is there; cheap, and what it says is not looked at.
  bool is_done(const std::string& unit);
  // Nothing when absent, unreadable or of another job.
  std::optional<UnitRecord> find(const std::string& unit) const;
  // Durable when it returns; the ranges must be so before.
  void commit(const UnitRecord& record);
  void forget(const std::string& unit);
  // Names of all records, sorted.
  std::vector<std::string> units() const;

 private:
  fs::path folder_;
  std::string job_;
  std::mutex mutex_;
  std::set<std::string> done_;  // seen before
};

// The same of a ledger that somebody else is at work on or takes away: what could be listed.
std::vector<std::string> units_in(const fs::path& ledger_folder, std::error_code& error);

// Reads no more than the front of a record, whose ranges and payload may be long. Nothing when it is absent, gone
// meanwhile, or no record.
std::optional<UnitSummary> read_unit_summary(const fs::path& record);

// Whether the file FOLDER/range.file still holds what the range says.
bool range_is_intact(const fs::path& folder, const WrittenRange& range);

}  // namespace trefoil
