#include "quantize/crew.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(100);

int64_t count_done(Ledger& ledger, const std::vector<Unit>& units) {
  return std::count_if(units.begin(), units.end(), [&](const Unit& unit) { return ledger.is_done(unit.name); });
}

std::string holder_of(const fs::path& claim) {
  try {
    return read_text_file(claim, 4096);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string this_process(const QuantizeOptions::Place& place) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  const std::string process = fmt::format("{}, process {}", host.data(), ::getpid());
  return place.size > 1 ? fmt::format("{}, rank {} of {}", process, place.rank, place.size) : process;
}

void Crew::run(std::string_view stage, const std::vector<Unit>& units) {
  options_.is_shared ? run_shared(stage, units) : run_alone(stage, units);
}

void Crew::run_alone(std::string_view stage, const std::vector<Unit>& units) {
  for (size_t i = 0; i < units.size(); ++i) {
    if (ledger_.is_done(units[i].name)) continue;
    progress_.update(stage, static_cast<int64_t>(i), static_cast<int64_t>(units.size()));
    work(units[i]);
  }
}

void Crew::run_shared(std::string_view stage, const std::vector<Unit>& units) {
  const auto total = static_cast<int64_t>(units.size());
  const int64_t first = total * options_.place.rank / options_.place.size;
  while (true) {
    bool is_missing = false, has_worked = false;
    for (int64_t i = 0; i < total; ++i) {
      const Unit& unit = units[static_cast<size_t>((first + i) % total)];
      if (ledger_.is_done(unit.name)) continue;
      is_missing = true;
      stop_if_asked();
      progress_.update(stage, count_done(ledger_, units), total);
      if (claim_and_work(unit)) has_worked = true;
    }
    if (!is_missing) return;
    if (!has_worked) std::this_thread::sleep_for(kPollInterval);  // others hold what is left
  }
}

// False when another process has it.
bool Crew::claim_and_work(const Unit& unit) {
  const fs::path claim = ledger_.folder() / (unit.name + ".claim");
  const std::string before = holder_of(claim);
  const std::string self = this_process(options_.place);
  const auto held = FileLock::acquire(claim, FileLock::Mode::kExclusive, self);
  if (!held) return false;
  if (ledger_.is_done(unit.name)) return true;
  if (!before.empty() && before != self)
    progress_.note(fmt::format("{}: {} is gone without finishing it; done again here", unit.name, before));
  work(unit);
  return true;
}

void Crew::work(const Unit& unit) {
  stop_if_asked();
  const auto start = std::chrono::steady_clock::now();
  UnitRecord record = unit.work();
  record.unit = unit.name;
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  busy_seconds_ += record.seconds;
  ledger_.commit(record);
}

void Crew::stop_if_asked() const {
  if (options_.stop != nullptr && options_.stop->load())
    fail(ErrorCode::kCancelled, "stopped as asked; the same command continues");
}

}  // namespace trefoil
