#include "quantize/crew.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "plan/machine.h"
#include "quantize/stop.h"

namespace trefoil {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(100);

std::string holder_of(const fs::path& claim) {
  try {
    return read_text_file(claim, 4096);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string this_host() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return host.data();
}

std::string process_name(int64_t process) {
  return fmt::format("{}, process {}", this_host(), process);
}

std::string this_process(const QuantizeOptions::Place& place) {
  const std::string process = process_name(::getpid());
  return place.size > 1 ? fmt::format("{}, rank {} of {}", process, place.rank, place.size) : process;
}

void Crew::run(std::string_view stage, const std::vector<Unit>& units) {
  at_once_ = 1;
  run_rounds(stage, units, [&](Round& round) { visit(round); });
}

void Crew::run_side_by_side(std::string_view stage, const std::vector<Unit>& units, ThreadPool& pool, int64_t at_once) {
  at_once_ = std::clamp<int64_t>(at_once, 1, pool.num_threads());
  run_rounds(stage, units, [&](Round& round) { pool.parallel_for(at_once_, [&](int64_t) { visit(round); }); });
}

// Until a round finds nothing missing.
void Crew::run_rounds(std::string_view stage, const std::vector<Unit>& units,
                      const std::function<void(Round&)>& let_workers_visit) {
  if (!has_looked_) look_at_ledger();
  while (true) {
    Round round{stage, units};
    let_workers_visit(round);
    if (!round.is_missing) return;
    if (!round.has_worked) std::this_thread::sleep_for(kPollInterval);  // others hold what is left
  }
}

void Crew::visit(Round& round) {
  const auto total = static_cast<int64_t>(round.units.size());
  const int64_t first = options_.is_shared ? total * options_.place.rank / options_.place.size : 0;
  try {
    for (int64_t i = round.next++; i < total && !round.has_failed; i = round.next++) {
      const Unit& unit = round.units[static_cast<size_t>((first + i) % total)];
      if (is_done(unit.name)) continue;
      round.is_missing = true;
      stop_if_asked(options_.stop);
      report(round);
      if (!options_.is_shared) {
        work(unit);
      } else if (!claim_and_work(unit)) {
        continue;
      }
      round.has_worked = true;
    }
  } catch (...) {
    round.has_failed = true;
    throw;
  }
}

// What earlier runs and other processes have finished.
void Crew::look_at_ledger() {
  for (const std::string& unit : ledger_.units()) is_done(unit);
  found_seconds_ = tally_.seconds();
  has_looked_ = true;
}

bool Crew::is_done(const std::string& unit) {
  const std::lock_guard lock(mutex_);
  if (!ledger_.is_done(unit)) return false;
  if (!tally_.knows(unit)) {
    const std::optional<UnitSummary> summary = read_unit_summary(ledger_.record_of(unit));
    tally_.add(unit, summary ? summary->seconds : 0);
  }
  return true;
}

void Crew::report(const Round& round) {
  int64_t done = 0, total = 0;
  for (const Unit& unit : round.units) {
    total += unit.items;
    if (is_done(unit.name)) done += unit.items;
  }
  const std::lock_guard lock(mutex_);
  ProgressRates rates = tally_.rates_at(round.units.front().name);
  // The others do their part of what is left, as they did since this process began.
  const double all_seconds = tally_.seconds() - found_seconds_;
  if (all_seconds > 0) rates.left_s *= busy_seconds_ / all_seconds;
  rates.resident_bytes = resident_bytes();
  rates.budget_bytes = options_.budget_bytes;
  progress_.update_job(round.stage, done, total, rates);
}

// False when another process has it.
bool Crew::claim_and_work(const Unit& unit) {
  const fs::path claim = ledger_.folder() / (unit.name + ".claim");
  const std::string before = holder_of(claim);
  const std::string self = this_process(options_.place);
  const auto held = FileLock::acquire(claim, FileLock::Mode::kExclusive, self);
  if (!held) return false;
  if (is_done(unit.name)) return true;
  if (!before.empty() && before != self) {
    const std::lock_guard lock(mutex_);
    progress_.note(fmt::format("{}: {} is gone without finishing it; done again here", unit.name, before));
  }
  work(unit);
  return true;
}

void Crew::work(const Unit& unit) {
  stop_if_asked(options_.stop);
  const auto start = std::chrono::steady_clock::now();
  UnitRecord record = unit.work();
  record.unit = unit.name;
  record.by = this_process(options_.place);
  // The process's time, of which units side by side share each second.
  record.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(at_once_);
  ledger_.commit(record);
  const std::lock_guard lock(mutex_);
  busy_seconds_ += record.seconds;
  tally_.add(unit.name, record.seconds);
}

}  // namespace trefoil
