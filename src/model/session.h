// A sequence that is being written: it can be extended at its end, looked at as a whole, and nothing else. There is no
// way back, to a shorter sequence or to another one, except a snapshot taken at exactly that place.
//
// Not thread-safe. The model must outlive the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/sequence_snapshot.h"
#include "trefoil/progress.h"

namespace trefoil {

// How a long piece of text is run.
struct PrefillOptions {
  int64_t chunk = 512;                      // ids at once: memory and speed, not the result
  ProgressSink* progress = nullptr;         // "prefill" with tokens per second
  const std::atomic<bool>* stop = nullptr;  // looked at before every chunk
};

class Session {
 public:
  explicit Session(const Model& model);
  // Goes on where `snapshot`, which must be of this model, stands.
  Session(const Model& model, const SequenceSnapshot& snapshot);
  Session(Session&&) noexcept = default;
  Session& operator=(Session&&) noexcept = default;

  const std::vector<int32_t>& ids() const { return ids_; }
  int64_t position() const { return static_cast<int64_t>(ids_.size()); }
  int64_t room() const { return model_->config().max_position_embeddings - position(); }
  uint64_t bytes() const { return state_bytes(state_); }  // of memory, of its state
  // What comes after the last id: [vocab_size]; empty at the very beginning.
  std::span<const float> logits() const { return logits_; }

  // Runs `ids` after what was seen. Error(kInvalidArgument), and nothing is changed, when an id is none of the
  // vocabulary's or there is no room. After any other Error the session is spent: it refuses to go on.
  void extend(std::span<const int32_t> ids);
  // The same in chunks. Returns how many ids were run: fewer than given when it was stopped.
  int64_t extend(std::span<const int32_t> ids, const PrefillOptions& options);

  SequenceSnapshot snapshot() const;

 private:
  void check(std::span<const int32_t> ids) const;
  void run(std::span<const int32_t> ids);
  void require_whole() const;

  const Model* model_;
  SequenceState state_;
  std::vector<int32_t> ids_;
  std::vector<float> logits_;
  bool is_spent_ = false;
};

// Snapshots in memory, of one model, within a budget of bytes: the least recently used go first.
class SnapshotStore {
 public:
  using Entry = std::shared_ptr<const SequenceSnapshot>;

  explicit SnapshotStore(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  // Replaces one of the same ids. False, and nothing is changed, when it alone exceeds the budget.
  bool keep(SequenceSnapshot snapshot);
  // The longest whose ids ALL stand at the beginning of `ids`; null when there is none. What shares less than all of
  // its ids is of no use.
  Entry find(std::span<const int32_t> ids);
  void clear() { entries_.clear(); }

  uint64_t bytes() const;
  size_t size() const { return entries_.size(); }

 private:
  uint64_t budget_bytes_;
  std::vector<Entry> entries_;  // the most recently used last
};

// A session whose ids are a prefix of `ids`: at the best snapshot of the store, or fresh.
Session resume(const Model& model, SnapshotStore& store, std::span<const int32_t> ids);

}  // namespace trefoil
