// Where a quantizing job is, from the files in its output folder: the `status` command as a library. It only reads,
// takes no lock, and expects any file to change or go away while it looks.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trefoil {

enum class JobState {
  kRunning,    // a process of this machine has the job open
  kStopped,    // none has; the same command continues
  kElsewhere,  // begun by another machine, of which this one cannot tell
  kFinished,   // the report has its final name
};
const char* to_string(JobState state);  // "running", "stopped", "elsewhere", "finished"

// A process that has a part in the job, now or before.
struct JobWorker {
  std::string name;  // "host, process 1234"
  int64_t units = 0;
  double busy_s = 0;  // in units
  bool at_work = false;
};

// One step of the present layer.
struct JobStepStatus {
  std::string title;  // "layer 3 of 0..92: experts"
  int64_t units = 0;
  int64_t done_units = 0;
};

struct JobStatus {
  std::string output;  // the folder, as it was given
  JobState state = JobState::kStopped;
  bool is_publishing = false;  // every file is made and on its way to its name

  // All below is empty or 0 for a finished job, but for done_fraction, 1.
  std::vector<JobWorker> workers;  // by units, most first
  int64_t layers = 0;              // decoder layers to walk through
  int64_t done_layers = 0;
  std::optional<JobStepStatus> step;    // the first that is not done
  std::vector<JobStepStatus> in_layer;  // all steps of its layer
  int64_t units = 0;
  int64_t done_units = 0;
  double busy_s = 0;             // of all processes, in units
  double done_fraction = 0;      // in time
  std::optional<double> left_s;  // shared by the processes at work, or for one; nothing before the first unit
  std::string last_unit;
  std::optional<std::chrono::system_clock::time_point> last_finished;
  uint64_t budget_bytes = 0;
  uint64_t planned_memory_bytes = 0;
  uint64_t planned_scratch_bytes = 0;
};

// Error(kNotFound) when `output` holds neither a job nor a finished output, kCorrupt when the job's own description is
// damaged.
JobStatus read_status(const std::filesystem::path& output);

// Whether `output` holds a job and no checkpoint yet.
bool is_unfinished(const std::filesystem::path& output);

std::string to_text(const JobStatus& status);
std::string to_json(const JobStatus& status);

}  // namespace trefoil
