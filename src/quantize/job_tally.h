// How far a job is: which of its planned units are done, what they took, and from both what is left. The job itself keeps
// one for its progress, `status` makes one from the ledger.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "quantize/job_plan.h"
#include "trefoil/progress.h"

namespace trefoil {

class JobTally {
 public:
  struct Step {
    PlannedStep plan;
    int64_t done = 0;    // units
    double seconds = 0;  // that they took
    bool is_done() const { return done >= plan.units; }
  };

  explicit JobTally(std::vector<PlannedStep> steps);

  // Whether the unit was added, or is of no step of the plan.
  bool knows(const std::string& unit) const;
  void add(const std::string& unit, double seconds);

  const std::vector<Step>& steps() const { return steps_; }
  // The first that is not done; null when all are.
  const Step* current() const;
  int64_t units() const;
  int64_t done_units() const;
  double seconds() const;  // of all units that are done
  // Seconds that one process needs for what is left: of every kind of step at the rate of its units that are done, of a
  // kind of which none is yet at the rate of all others. Nothing before the first that counts its arithmetic.
  std::optional<double> left_seconds() const;
  // done / (done + left), in time.
  double done_fraction() const;
  // What is known of the job at the step that `unit` is of; bytes are the caller's to fill in.
  ProgressRates rates_at(const std::string& unit) const;

 private:
  std::vector<Step> steps_;
  std::unordered_map<std::string, size_t> by_name_;
  std::unordered_set<std::string> units_;  // added
};

}  // namespace trefoil
