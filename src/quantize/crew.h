// Who does which unit of a step. Alone, a process does all that the ledger does not have. Several processes that share
// the work folder claim units one by one: a claim is a lock on a file, which the system drops when its holder ends,
// however it ends, so a dead process is noticed at once, named, and its unit done by another. Processes that know their
// rank begin each step at different units and so seldom want the same one; what is left at the end anyone takes.
//
// Within a process, units that need only one thread run side by side: while one reads its inputs or waits for its
// results to reach the disk, the others compute.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "quantize/job_tally.h"
#include "quantize/ledger.h"
#include "trefoil/progress.h"
#include "trefoil/quantize.h"

namespace trefoil {

struct Unit {
  std::string name;
  std::function<UnitRecord()> work;  // its results are durable when it returns; name, process, seconds follow after
  int64_t items = 1;                 // that progress counts: rows, experts
};

class Crew {
 public:
  struct Options {
    bool is_shared = false;                   // other processes may be at work in the same folder
    const std::atomic<bool>* stop = nullptr;  // may be null
    QuantizeOptions::Place place = {};        // rank r of n begins at unit r/n of a step
    std::vector<PlannedStep> plan = {};       // of the job, for its progress; may be empty
    uint64_t budget_bytes = 0;                // of memory, for progress
  };

  Crew(Ledger& ledger, Options options, ProgressSink& progress)
      : ledger_(ledger), options_(std::move(options)), progress_(progress), tally_(options_.plan) {}

  // Returns when every unit is done, by whoever. Error(kCancelled) between two units when asked to stop, and whatever a
  // unit throws. `stage` is what progress calls the step.
  void run(std::string_view stage, const std::vector<Unit>& units);
  // The same for units that do not use the pool: up to `at_once` of them on its threads.
  void run_side_by_side(std::string_view stage, const std::vector<Unit>& units, ThreadPool& pool, int64_t at_once);

 private:
  // One look at every unit of a step, by all workers of this process.
  struct Round {
    std::string_view stage;
    const std::vector<Unit>& units;
    std::atomic<int64_t> next = 0;
    std::atomic<bool> is_missing = false;  // some were not done
    std::atomic<bool> has_worked = false;
    std::atomic<bool> has_failed = false;
  };
  void run_rounds(std::string_view stage, const std::vector<Unit>& units,
                  const std::function<void(Round&)>& let_workers_visit);
  void visit(Round& round);
  bool claim_and_work(const Unit& unit);
  void work(const Unit& unit);
  bool is_done(const std::string& unit);
  void look_at_ledger();
  void report(const Round& round);

  Ledger& ledger_;
  Options options_;
  ProgressSink& progress_;
  int64_t at_once_ = 1;  // units of the present step
  std::mutex mutex_;     // for what follows and for progress
  JobTally tally_;
  bool has_looked_ = false;
  double found_seconds_ = 0;  // of units that were done before this process began
  double busy_seconds_ = 0;   // of units done here
};

// "host name, process 1234", with ", rank 1 of 3" where there are several. For claims, records and messages.
std::string this_process(const QuantizeOptions::Place& place);
std::string process_name(int64_t process);  // of one on this machine
std::string this_host();

}  // namespace trefoil
