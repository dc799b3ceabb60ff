// The routed experts of a checkpoint that does not fit into RAM, one step of one layer at a time: which are there, which
// must be read, and their bytes for as long as somebody computes with them.
//
//   store.expect(layer + 1, guess);                    // reads begin while there is nothing better to read
//   ExpertStore::Batch batch = store.begin(layer, experts);
//   while (batch.remaining() > 0) {
//     const ExpertLease expert = batch.next();         // those in RAM first, then in the order in which reads end
//     multiply(expert.matrix(ExpertMatrix::kW1), ...);
//   }
//
// A failed read is an Error of the next() or get() of that expert, never old or half-read bytes; the other experts of
// the step and later steps are not touched. A read that does not come back is an Error too, after wait_limit_seconds.
//
// Threads: one consumer calls expect(), begin() and a batch's functions; leases may be copied, used and dropped by any
// thread; counters() and set_budget() by any. Batches and leases keep what they need alive beyond the store.
// docs/architecture.md, "Experts from the drive".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "stream/drive_reader.h"
#include "stream/expert_layout.h"

namespace trefoil {

struct ExpertStoreOptions {
  uint64_t budget_bytes = 0;        // for the experts' slots, all the memory that grows with them
  int64_t passing_slots = 0;        // slots that no resident takes; 0: a quarter of all, 2 to 48
  double half_life = 256;           // of the residency policy, in steps of a layer
  double wait_limit_seconds = 120;  // for one expert
  DriveReaderOptions reader;
};

// Since the store was made. An expert of a step is one of the first three.
struct ExpertStoreCounters {
  uint64_t hits = 0;            // in RAM before the step began
  uint64_t late_hits = 0;       // a read that a hint had begun was still under way
  uint64_t misses = 0;          // nothing had begun
  uint64_t hinted_hits = 0;     // among the hits, those that a hint had brought and nobody had used
  uint64_t hints = 0;           // experts whose reading a hint began or queued
  uint64_t hints_dropped = 0;   // for which there was no slot
  uint64_t hints_canceled = 0;  // whose step came before their read began
  uint64_t bytes_hinted = 0;    // tensors of the hinted reads, those cancelled left out
  uint64_t bytes_read = 0;      // that the drive brought, alignment and hints included
  uint64_t bytes_used = 0;      // tensors of experts that were read and then used
  uint64_t reads = 0;           // of the system
  uint64_t under_way = 0;       // experts that are being read or queued for it at this moment
  double read_seconds = 0;      // while at least one read was under way
  double wait_seconds = 0;      // of the consumer in next() and get()
  uint64_t evictions = 0;       // slots that lost an expert
  uint64_t failures = 0;        // experts whose read failed
};

// An expert's bytes, unchanged for as long as a copy of the lease lives.
class ExpertLease {
 public:
  int64_t layer() const;
  int64_t expert() const;
  const StoredMatrix& matrix(ExpertMatrix which) const;

 private:
  friend class ExpertStore;
  struct Hold;
  explicit ExpertLease(std::shared_ptr<const Hold> hold) : hold_(std::move(hold)) {}
  std::shared_ptr<const Hold> hold_;
};

class ExpertStore {
 private:
  friend class ExpertLease;
  struct State;
  struct Step;
  struct Wanted;

 public:
  // The experts of one step. Dropping it gives up those not taken. Movable.
  class Batch {
   public:
    ~Batch();
    Batch(Batch&&) noexcept;
    Batch& operator=(Batch&&) = delete;

    int64_t remaining() const;  // experts not yet taken
    // The next expert there is. Error(kIo) when its read failed or does not come back; Error(kOverBudget) when every
    // slot stays in use by leases. After the Error of a failed read that expert is taken.
    ExpertLease next();
    // The same for one expert of the step that is not yet taken.
    ExpertLease get(int32_t expert);

   private:
    friend class ExpertStore;
    Batch(std::shared_ptr<State> state, std::unique_ptr<Step> step);
    ExpertLease take(Wanted* only);
    std::shared_ptr<State> state_;
    std::unique_ptr<Step> step_;
  };

  // Opens the shards' files of all copies. Error(kOverBudget) when the budget does not hold two experts.
  ExpertStore(ExpertLayout layout, const ExpertStoreOptions& options);
  ~ExpertStore();
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  // These experts are likely to be wanted when `layer` is next begun. Their reads begin behind all needed ones and only
  // into slots that hold nothing anybody asked for; what finds none is dropped and counted.
  void expect(int64_t layer, std::span<const int32_t> experts);

  // Experts ascending, each once. All reads that find a slot begin now, the others as slots are given back, so a step
  // may have more experts than the budget has slots.
  Batch begin(int64_t layer, std::span<const int32_t> experts);

  // Error(kOverBudget) as the constructor's, and then nothing changes. Memory in use by leases and reads goes with them.
  void set_budget(uint64_t bytes);
  int64_t max_slots() const;      // that the budget holds: as many leases can be held at once
  uint64_t memory_bytes() const;  // of the slots that have memory now

  ExpertStoreCounters counters() const;
  const ExpertLayout& layout() const;
  std::string report() const;  // how it reads, how much it keeps

 private:
  std::shared_ptr<State> state_;
};

}  // namespace trefoil
