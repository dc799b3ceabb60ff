#include "quantize/phase_times.h"

#include <ctime>

namespace trefoil {

const char* to_string(Phase phase) {
  static constexpr const char* kNames[kPhases.size()] = {"decode", "gather", "forward", "moments", "cross",  "target",
                                                         "factor", "scales", "sweep",   "refine",  "losses", "encode"};
  return kNames[static_cast<int>(phase)];
}

void PhaseTimes::add(Phase phase, const PhaseCost& cost) {
  PhaseCost& sum = cost_[static_cast<size_t>(phase)];
  sum.seconds += cost.seconds;
  sum.flops += cost.flops;
}

PhaseTimes& PhaseTimes::operator+=(const PhaseTimes& other) {
  for (const Phase phase : kPhases) add(phase, other[phase]);
  return *this;
}

PhaseCost PhaseTimes::total() const {
  PhaseCost sum;
  for (const PhaseCost& cost : cost_) {
    sum.seconds += cost.seconds;
    sum.flops += cost.flops;
  }
  return sum;
}

ExpertTimes& ExpertTimes::operator+=(const ExpertTimes& other) {
  gate_up += other.gate_up;
  down += other.down;
  return *this;
}

double thread_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace trefoil
