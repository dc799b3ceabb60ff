// Who does which unit of a step. Alone, a process does all that the ledger does not have. Several processes that share
// the work folder claim units one by one: a claim is a lock on a file, which the system drops when its holder ends,
// however it ends, so a dead process is noticed at once, named, and its unit done by another. Processes that know their
// rank begin each step at different units and so seldom want the same one; what is left at the end anyone takes.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quantize/ledger.h"
#include "trefoil/progress.h"
#include "trefoil/quantize.h"

namespace trefoil {

struct Unit {
  std::string name;
  std::function<UnitRecord()> work;  // its results are durable when it returns; name and seconds are filled in after
};

class Crew {
 public:
  struct Options {
    bool is_shared = false;                   // other processes may be at work in the same folder
    const std::atomic<bool>* stop = nullptr;  // may be null
    QuantizeOptions::Place place = {};        // rank r of n begins at unit r/n of a step
  };

  Crew(Ledger& ledger, const Options& options, ProgressSink& progress)
      : ledger_(ledger), options_(options), progress_(progress) {}

  // Returns when every unit is done, by whoever. Error(kCancelled) between two units when asked to stop, and whatever a
  // unit throws. `stage` is what progress calls the step.
  void run(std::string_view stage, const std::vector<Unit>& units);

  // Seconds this process spent in units.
  double busy_seconds() const { return busy_seconds_; }

 private:
  void run_alone(std::string_view stage, const std::vector<Unit>& units);
  void run_shared(std::string_view stage, const std::vector<Unit>& units);
  bool claim_and_work(const Unit& unit);
  void work(const Unit& unit);
  void stop_if_asked() const;

  Ledger& ledger_;
  Options options_;
  ProgressSink& progress_;
  double busy_seconds_ = 0;
};

// "host name, process 1234", with ", rank 1 of 3" where there are several. For claims and messages.
std::string this_process(const QuantizeOptions::Place& place);

}  // namespace trefoil
