// Where a job keeps what it needs to go on after it was killed, inside the staging folder of its output:
//
//   .job/lock       held by every process at work on the job
//   .job/job.json   what the results depend on ("identity") and was asked for ("asked"), how the work is cut ("grain"), where the activations are,
//                   a token, and for those who watch the plan of the job (job_plan.h), with the memory of the run that began or resumed it last
//   .job/ledger/    a record for each finished unit (ledger.h)
//   .job/activations/, or WORK_DIR/trefoil-<digest>/   (activation_store.h), with the token in a file of its own: a
//   folder without it is not the one that the ledger speaks of
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/output_folder.h"
#include "quantize/job_plan.h"
#include "quantize/report.h"
#include "quantize/walk.h"

namespace trefoil {

// Where the activations of a job lie: WORK_DIR/trefoil-<digest>, or inside the staging folder.
fs::path activation_folder_of(const fs::path& staging, const fs::path& work_dir, const std::string& digest);

// What every byte of the shards depends on, as (name, value): settings, source, token ids, arithmetic.
using JobIdentity = std::vector<std::pair<std::string, std::string>>;
JobIdentity identity_of(const QuantizeReport& report);
std::string digest_of(const JobIdentity& identity);
// What the calibration tokens follow from, in the words of the command line: it explains why two runs' differ.
JobIdentity asked_of(const QuantizeReport& report);

// Where it is in the staging folder, and its parts.
inline constexpr std::string_view kJobFile = "job.json";
fs::path job_in(const fs::path& staging);
fs::path lock_of(const fs::path& job);
fs::path ledger_of(const fs::path& job);
// What job.json plans. Error(kNotFound) when it is not there, kCorrupt.
JobPlan read_job_plan(const fs::path& job);

class JobFolder {
 public:
  struct Options {
    bool is_shared = false;                   // other processes may join
    bool overwrite = false;                   // an interrupted run of another identity is thrown away
    bool resume = false;                      // there must be an interrupted run
    fs::path work_dir;                        // of the activations; empty: inside the staging folder
    const std::atomic<bool>* stop = nullptr;  // ends the wait for another process's audit; may be null
    std::string holder;                       // this process, as others are told of it
    JobIdentity asked;                        // asked_of() this run
  };

  // Takes the lock and finds out what is there: nothing, the same job, or another one. Error(kInvalidArgument) naming
  // what differs when an interrupted run of another identity may not be thrown away, another process is at work and this
  // one was not told to join it, or the activations of those at work lie elsewhere; kUnsupported when processes would
  // share a job on a file system without locks.
  // `plan` belongs to `grain`.
  JobFolder(OutputFolder& output, const JobIdentity& identity, const WorkGrain& grain, const JobPlan& plan,
            const Options& options);

  // No other process was at work when this one came.
  bool is_alone() const { return is_alone_; }
  // Whether an earlier run left something to go on with, and this process is alone: its records must be audited.
  bool needs_audit() const { return needs_audit_; }
  // Lets others in, once the audit is over.
  void share();

  // The right to finish the output; nothing when another process has it or had it.
  std::optional<FileLock> claim_finish() const;

  const std::string& digest() const { return digest_; }  // of the identity
  const WorkGrain& grain() const { return grain_; }      // of the job: an earlier run's where there was one
  fs::path ledger_folder() const { return ledger_of(folder_); }
  const fs::path& activation_folder() const { return activations_; }

 private:
  void take_lock(const Options& options);
  // Takes over the grain, planned steps, token and place of the job on disk when its identity is this one; else says what differs.
  std::string compare_with_disk(const JobIdentity& identity);
  void begin_anew(OutputFolder& output, const JobIdentity& identity);
  void take_over_activations(const JobIdentity& identity);
  bool holds_token(const fs::path& activations) const;
  void write(const JobIdentity& identity) const;

  fs::path folder_;
  fs::path activations_;          // of this run
  fs::path earlier_activations_;  // of the run that job.json is from
  std::string token_;
  std::optional<FileLock> lock_;
  bool is_alone_ = false;
  bool needs_audit_ = false;
  std::string digest_;
  WorkGrain grain_;
  std::string plan_;  // to_json(JobPlan)
  JobIdentity asked_;
};

}  // namespace trefoil
