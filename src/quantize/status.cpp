// read_status(): the job folder (job_folder.h), seen from outside.
#include "trefoil/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/output_folder.h"
#include "plan/open_files.h"
#include "quantize/crew.h"
#include "quantize/job_folder.h"
#include "quantize/job_tally.h"

namespace trefoil {
namespace {

constexpr uint64_t kLargestNote = 4096;

JobStepStatus status_of(const JobTally::Step& step) {
  return {step.plan.title, step.plan.units, step.done};
}

class StatusReader {
 public:
  StatusReader(const fs::path& output, const fs::path& job) : job_(job) { status_.output = output.string(); }

  JobStatus read() {
    const JobPlan plan = read_job_plan(job_);
    status_.budget_bytes = plan.budget_bytes;
    status_.planned_memory_bytes = plan.memory_bytes;
    status_.planned_scratch_bytes = plan.scratch_bytes;
    JobTally tally(plan.steps);
    read_units(tally);
    describe(tally);
    find_workers();
    const std::optional<double> left = tally.left_seconds();
    if (left) status_.left_s = *left / static_cast<double>(std::max<size_t>(at_work_, 1));
    return std::move(status_);
  }

 private:
  void read_units(JobTally& tally) {
    const fs::path ledger = ledger_of(job_);
    std::error_code vanished;
    for (const std::string& unit : units_in(ledger, vanished)) {
      const std::optional<UnitSummary> summary = read_unit_summary(ledger / (unit + ".json"));
      if (!summary || tally.knows(unit)) continue;
      tally.add(unit, summary->seconds);
      JobWorker& worker = workers_[summary->by];
      ++worker.units;
      worker.busy_s += summary->seconds;
      if (status_.last_finished && *status_.last_finished > summary->finished) continue;
      status_.last_finished = summary->finished;
      status_.last_unit = unit;
    }
  }

  void describe(const JobTally& tally) {
    status_.units = tally.units();
    status_.done_units = tally.done_units();
    status_.busy_s = tally.seconds();
    status_.done_fraction = tally.done_fraction();
    std::map<int64_t, bool> done;  // by layer
    for (const JobTally::Step& step : tally.steps()) {
      if (step.plan.layer >= 0) done.try_emplace(step.plan.layer, true).first->second &= step.is_done();
    }
    status_.layers = static_cast<int64_t>(done.size());
    status_.done_layers = std::count_if(done.begin(), done.end(), [](const auto& layer) { return layer.second; });
    const JobTally::Step* current = tally.current();
    if (current == nullptr) return;
    status_.step = status_of(*current);
    for (const JobTally::Step& step : tally.steps()) {
      if (step.plan.layer == current->plan.layer) status_.in_layer.push_back(status_of(step));
    }
  }

  // The first process writes its name into the lock; those that joined it show by what they have open and finished.
  void find_workers() {
    for (const int64_t process : processes_with_open(lock_of(job_))) {
      ++at_work_;
      worker_of(process_name(process)).at_work = true;
    }
    for (auto& [name, worker] : workers_) {
      worker.name = name;
      status_.workers.push_back(worker);
    }
    std::stable_sort(status_.workers.begin(), status_.workers.end(),
                     [](const JobWorker& a, const JobWorker& b) { return a.units > b.units; });
    status_.state = at_work_ > 0 ? JobState::kRunning : is_of_this_host() ? JobState::kStopped : JobState::kElsewhere;
  }

  // Under MPI units are signed with the rank too.
  JobWorker& worker_of(const std::string& process) {
    const auto signed_with_rank = std::find_if(
        workers_.begin(), workers_.end(), [&](const auto& worker) { return worker.first.starts_with(process + ", "); });
    return signed_with_rank == workers_.end() ? workers_[process] : signed_with_rank->second;
  }

  bool is_of_this_host() const {
    try {
      const std::string holder = read_text_file(lock_of(job_), kLargestNote);
      return holder.empty() || holder.starts_with(this_host() + ", ");
    } catch (const Error&) {
      return true;  // gone
    }
  }

  fs::path job_;
  JobStatus status_;
  std::map<std::string, JobWorker> workers_;
  size_t at_work_ = 0;
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

const char* to_string(JobState state) {
  switch (state) {
    case JobState::kRunning:
      return "running";
    case JobState::kStopped:
      return "stopped";
    case JobState::kElsewhere:
      return "elsewhere";
    case JobState::kFinished:
      return "finished";
  }
  return "?";
}

bool is_unfinished(const fs::path& output) {
  return is_there(job_in(output / kStagingName) / kJobFile) && !is_there(output / kIndexFile);
}

JobStatus read_status(const fs::path& output) {
  const fs::path staging = output / kStagingName, job = job_in(staging);
  try {
    JobStatus status = StatusReader(output, job).read();
    status.is_publishing = is_there(staging / kPublishMark);
    if (is_there(job / kJobFile)) return status;  // else it ended while we looked
  } catch (const Error& absent) {
    if (absent.code() != ErrorCode::kNotFound) throw;
  }
  if (!is_there(output / kReportFile)) {
    fail(ErrorCode::kNotFound, "{}: neither a quantizing job nor its output (no {}, no {})", output.string(),
         (job / kJobFile).lexically_relative(output).string(), kReportFile);
  }
  JobStatus status;
  status.output = output.string();
  status.state = JobState::kFinished;
  status.done_fraction = 1;
  status.left_s = 0;
  return status;
}

}  // namespace trefoil
