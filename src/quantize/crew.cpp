#include "quantize/crew.h"

#include <fmt/format.h>
#include <unistd.h>

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
  if (!has_looked_) look_at_ledger();
  options_.is_shared ? run_shared(stage, units) : run_alone(stage, units);
}

void Crew::run_alone(std::string_view stage, const std::vector<Unit>& units) {
  for (const Unit& unit : units) {
    if (is_done(unit.name)) continue;
    report(stage, units);
    work(unit);
  }
}

void Crew::run_shared(std::string_view stage, const std::vector<Unit>& units) {
  const auto total = static_cast<int64_t>(units.size());
  const int64_t first = total * options_.place.rank / options_.place.size;
  while (true) {
    bool is_missing = false, has_worked = false;
    for (int64_t i = 0; i < total; ++i) {
      const Unit& unit = units[static_cast<size_t>((first + i) % total)];
      if (is_done(unit.name)) continue;
      is_missing = true;
      stop_if_asked(options_.stop);
      report(stage, units);
      if (claim_and_work(unit)) has_worked = true;
    }
    if (!is_missing) return;
    if (!has_worked) std::this_thread::sleep_for(kPollInterval);  // others hold what is left
  }
}

// What earlier runs and other processes have finished.
void Crew::look_at_ledger() {
  for (const std::string& unit : ledger_.units()) is_done(unit);
  found_seconds_ = tally_.seconds();
  has_looked_ = true;
}

bool Crew::is_done(const std::string& unit) {
  if (!ledger_.is_done(unit)) return false;
  if (!tally_.knows(unit)) {
    const std::optional<UnitSummary> summary = read_unit_summary(ledger_.record_of(unit));
    tally_.add(unit, summary ? summary->seconds : 0);
  }
  return true;
}

void Crew::report(std::string_view stage, const std::vector<Unit>& units) {
  int64_t done = 0, total = 0;
  for (const Unit& unit : units) {
    total += unit.items;
    if (is_done(unit.name)) done += unit.items;
  }
  ProgressRates rates = tally_.rates_at(units.front().name);
  // The others do their part of what is left, as they did since this process began.
  const double all_seconds = tally_.seconds() - found_seconds_;
  if (all_seconds > 0) rates.left_s *= busy_seconds_ / all_seconds;
  rates.resident_bytes = resident_bytes();
  rates.budget_bytes = options_.budget_bytes;
  progress_.update_job(stage, done, total, rates);
}

// False when another process has it.
bool Crew::claim_and_work(const Unit& unit) {
  const fs::path claim = ledger_.folder() / (unit.name + ".claim");
  const std::string before = holder_of(claim);
  const std::string self = this_process(options_.place);
  const auto held = FileLock::acquire(claim, FileLock::Mode::kExclusive, self);
  if (!held) return false;
  if (is_done(unit.name)) return true;
  if (!before.empty() && before != self)
    progress_.note(fmt::format("{}: {} is gone without finishing it; done again here", unit.name, before));
  work(unit);
  return true;
}

void Crew::work(const Unit& unit) {
  stop_if_asked(options_.stop);
  const auto start = std::chrono::steady_clock::now();
  UnitRecord record = unit.work();
  record.unit = unit.name;
  record.by = this_process(options_.place);
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  busy_seconds_ += record.seconds;
  ledger_.commit(record);
  tally_.add(unit.name, record.seconds);
}

}  // namespace trefoil
