#include "quantize/job_tally.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quantize/unit_names.h"

namespace trefoil {
namespace {

double share_of(const JobTally::Step& step) {
  return step.plan.units > 0 ? static_cast<double>(step.done) / static_cast<double>(step.plan.units) : 0;
}

// Work done and to do, in GFLOP where a step counts them, else in units.
struct Work {
  double done = 0, left = 0, seconds = 0;
  bool is_in_gflop = false;

  void add(const JobTally::Step& step) {
    is_in_gflop = step.plan.gflop > 0;
    const double size = is_in_gflop ? step.plan.gflop : static_cast<double>(step.plan.units);
    done += size * share_of(step);
    left += size * (1 - share_of(step));
    seconds += step.seconds;
  }
  bool has_rate() const { return done > 0; }
  double left_seconds() const { return left * seconds / done; }
};

}  // namespace

JobTally::JobTally(std::vector<PlannedStep> steps) {
  for (PlannedStep& step : steps) {
    by_name_[step.step] = steps_.size();
    steps_.push_back({std::move(step), 0, 0});
  }
}

bool JobTally::knows(const std::string& unit) const {
  return units_.contains(unit) || !by_name_.contains(std::string(step_of(unit)));
}

void JobTally::add(const std::string& unit, double seconds) {
  if (knows(unit)) return;
  units_.insert(unit);
  Step& step = steps_[by_name_.at(std::string(step_of(unit)))];
  ++step.done;
  if (std::isfinite(seconds) && seconds > 0) step.seconds += seconds;
}

const JobTally::Step* JobTally::current() const {
  const auto at = std::find_if(steps_.begin(), steps_.end(), [](const Step& step) { return !step.is_done(); });
  return at == steps_.end() ? nullptr : &*at;
}

int64_t JobTally::units() const {
  return std::accumulate(steps_.begin(), steps_.end(), int64_t{0},
                         [](int64_t sum, const Step& step) { return sum + step.plan.units; });
}

int64_t JobTally::done_units() const {
  return std::accumulate(steps_.begin(), steps_.end(), int64_t{0},
                         [](int64_t sum, const Step& step) { return sum + step.done; });
}

double JobTally::seconds() const {
  return std::accumulate(steps_.begin(), steps_.end(), 0.0,
                         [](double sum, const Step& step) { return sum + step.seconds; });
}

std::optional<double> JobTally::left_seconds() const {
  if (done_units() == 0) return std::nullopt;
  std::array<Work, kStepKinds.size()> kinds;
  Work counted;  // all steps that count their arithmetic
  for (const Step& step : steps_) {
    kinds[static_cast<size_t>(step.plan.kind)].add(step);
    if (step.plan.gflop > 0) counted.add(step);
  }
  double left = 0;
  for (const Work& work : kinds) {
    if (work.has_rate()) {
      left += work.left_seconds();
    } else if (work.is_in_gflop && counted.has_rate()) {
      left += work.left * counted.seconds / counted.done;
    } else if (work.is_in_gflop && work.left > 0) {
      return std::nullopt;
    }
  }
  return left;
}

double JobTally::done_fraction() const {
  const std::optional<double> left = left_seconds();
  const double done = seconds();
  return left && done + *left > 0 ? done / (done + *left) : 0;
}

ProgressRates JobTally::rates_at(const std::string& unit) const {
  ProgressRates rates;
  rates.done_fraction = done_fraction();
  rates.left_s = left_seconds().value_or(0);
  const auto at = by_name_.find(std::string(step_of(unit)));
  if (at == by_name_.end()) return rates;
  const Step& step = steps_[at->second];
  if (step.seconds > 0) {
    rates.tokens_per_s = static_cast<double>(step.plan.tokens) * share_of(step) / step.seconds;
    rates.gflop_per_s = step.plan.gflop * share_of(step) / step.seconds;
  }
  return rates;
}

}  // namespace trefoil
