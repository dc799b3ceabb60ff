// The memory that experts are read into: a number of equal slots within a budget, and which expert is in which.
//
// A slot is empty, being read into, or ready. Pins say that somebody uses it: a pinned slot and one that is being read
// into are never given to another expert, whatever the budget. Residents (residency_policy.h) keep their slots; the
// others are passing through, and the one used longest ago is the next to go. At least `passing` slots are kept for
// those, so that reads can be under way at all.
//
// No reads here and no lock: the owner (expert_store.h) brings both. set_max_slots() gives memory back at once, or as
// soon as its pins and reads end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "base/bytes.h"
#include "base/page_buffer.h"
#include "stream/direct_alignment.h"
#include "stream/residency_policy.h"

namespace trefoil {

class ExpertCache {
 public:
  enum class SlotState { kEmpty, kReading, kReady };
  struct Slot {
    PageBuffer memory;
    bool has_pages = false;  // was read into, so that its memory is real
    int buffer = -1;         // of Buffers::add
    int64_t key = -1;
    SlotState state = SlotState::kEmpty;
    int pins = 0;
    bool is_hinted = false;  // read for a hint, not used yet
    bool is_fresh = false;   // read and not used yet, for whatever reason
    uint64_t last_use = 0;
    bool is_idle = false;  // in idle_; is_hinted and last_use then change only together with it
  };
  // Told of every slot's memory before its first read and before it is unmapped.
  struct Buffers {
    std::function<int(MutableBytes)> add = [](MutableBytes) { return -1; };
    std::function<void(int)> remove = [](int) {};
  };

  // Maps all slots, so that what the system refuses is an Error here or of set_max_slots(); their pages come with the first
  // read. max_slots >= 2; passing 0: a quarter of the slots, 2 to 48.
  ExpertCache(uint64_t slot_bytes, int64_t max_slots, int64_t passing, ResidencyPolicy policy, Buffers buffers);
  ~ExpertCache();
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  uint64_t slot_bytes() const { return slot_bytes_; }
  int64_t max_slots() const { return max_slots_; }
  int64_t num_slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t num_pinned() const;
  uint64_t evictions() const { return evictions_; }
  const ResidencyPolicy& policy() const { return policy_; }

  // Null when the expert has no slot; else it is being read or ready.
  Slot* find(int64_t key) const { return by_key_[static_cast<size_t>(key)]; }

  // Tells the policy of a step.
  void use(std::span<const int64_t> keys);

  // A slot for an expert that has none, in state kReading. For a hint nothing goes that another hint brought and nobody
  // used. Null when all are in use or belong to residents.
  Slot* take(int64_t key, bool for_hint);
  // Then the resident with the lowest score, if it is not in use.
  Slot* take_from_residents(int64_t key);

  void pin(Slot& slot);
  void unpin(Slot& slot);
  void set_ready(Slot& slot);
  // What was read is nothing: the expert has no slot any more, is no resident, and the slot is empty once its pins end.
  void set_failed(Slot& slot);
  // Only the policy's record; for an expert that is not read after all.
  void forget(int64_t key) { policy_.forget(key); }
  // Was used now. A hint that was used, or whose step has passed, is none any more.
  void touch(Slot& slot);
  void clear_hint(Slot& slot);

  void set_max_slots(int64_t max_slots);
  // Of the slots that were read into: what the budget costs now.
  uint64_t memory_bytes() const { return static_cast<uint64_t>(num_with_pages_) * slot_bytes_; }

 private:
  void add_slots();
  Slot* drop_resident(int64_t but_for);
  Slot* assign(Slot* slot, int64_t key);
  void detach(Slot& slot);
  void leave_idle(Slot& slot);
  void refresh(Slot& slot);
  void remove(Slot& slot);
  void trim();
  int64_t capacity() const;

  uint64_t slot_bytes_;
  int64_t max_slots_;
  int64_t passing_;
  ResidencyPolicy policy_;
  Buffers buffers_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> by_key_;
  std::vector<Slot*> empty_;
  // Ready, not pinned, no residents; the next to go first. last_use is a clock's and so tells all of them apart.
  std::set<std::tuple<bool, uint64_t, Slot*>> idle_;  // (is_hinted, last_use, slot)
  int64_t num_with_pages_ = 0;
  uint64_t clock_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace trefoil
