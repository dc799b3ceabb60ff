// Where a job keeps what it needs to go on after it was killed, inside the staging folder of its output:
//
//   .job/lock       held by every process at work on the job
//   .job/job.json   what the results depend on, and how the work is cut
//   .job/ledger/    a record for each finished unit (ledger.h)
//   .job/activations/, or WORK_DIR/trefoil-<digest>/   (activation_store.h)
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/output_folder.h"
#include "quantize/report.h"
#include "quantize/walk.h"

namespace trefoil {

// What every byte of the shards depends on, as (name, value): settings, source, token ids, arithmetic.
using JobIdentity = std::vector<std::pair<std::string, std::string>>;
JobIdentity identity_of(const QuantizeReport& report);

class JobFolder {
 public:
  struct Options {
    bool is_shared = false;  // other processes may join
    bool overwrite = false;  // an interrupted run of another identity is thrown away
    fs::path work_dir;       // of the activations; empty: inside the staging folder
  };

  // Takes the lock and finds out what is there: nothing, the same job, or another one. Error(kInvalidArgument) naming
  // what differs when an interrupted run of another identity may not be thrown away, or another process is at work and
  // this one was not told to join it.
  JobFolder(OutputFolder& output, const JobIdentity& identity, const WorkGrain& grain, const Options& options);

  // Whether an earlier run left something to go on with, and this process is alone: its records must be audited.
  bool needs_audit() const { return needs_audit_; }
  // Lets others in, once the audit is over.
  void share();

  // The right to finish the output; nothing when another process has it or had it.
  std::optional<FileLock> claim_finish() const;

  const std::string& digest() const { return digest_; }  // of the identity
  const WorkGrain& grain() const { return grain_; }      // of the job: an earlier run's where there was one
  fs::path ledger_folder() const { return folder_ / "ledger"; }
  const fs::path& activation_folder() const { return activations_; }

 private:
  void take_lock(const Options& options);
  // Takes over the grain of the job on disk when its identity is this one; else says what differs.
  std::string compare_with_disk(const JobIdentity& identity);
  void write(const JobIdentity& identity, const WorkGrain& grain) const;

  fs::path folder_;
  fs::path activations_;
  std::optional<FileLock> lock_;
  bool is_alone_ = false;
  bool needs_audit_ = false;
  std::string digest_;
  WorkGrain grain_;
};

}  // namespace trefoil
