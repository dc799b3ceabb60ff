// How long tasks tell their caller where they are. Libraries never print: they call a sink, the command line draws it.
#pragma once

#include <cstdint>
#include <string_view>

namespace trefoil {

// What a task that plans all its work ahead knows beside its place. 0 stands for what is not known.
struct ProgressRates {
  double tokens_per_s = 0;      // of text, through the present step, by one process
  double gflop_per_s = 0;       // multiplications and additions of the present step, by the task's own formulas
  uint64_t resident_bytes = 0;  // of this process, now
  uint64_t budget_bytes = 0;    // most that it may have
  double done_fraction = 0;     // of the whole task, in time
  double left_s = 0;            // of the whole task
};

// Calls may come from any thread, one at a time. The default implementation ignores everything.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // `done` of `total` units of `stage` ("layer 3: experts") are finished; total 0 means unknown.
  virtual void update(std::string_view /*stage*/, int64_t /*done*/, int64_t /*total*/) {}
  // The same from a task that knows its rates.
  virtual void update_job(std::string_view stage, int64_t done, int64_t total, const ProgressRates& /*rates*/) {
    update(stage, done, total);
  }
  // A fact a person should see once, such as a fallback that was taken.
  virtual void note(std::string_view /*message*/) {}
  // Something else is about to be shown: a line that is drawn again and again has to go.
  virtual void make_way() {}
};

}  // namespace trefoil
