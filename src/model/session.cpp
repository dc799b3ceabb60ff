#include "model/session.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/error.h"

namespace trefoil {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void report(ProgressSink* progress, int64_t done, int64_t total, double seconds) {
  if (progress == nullptr) return;
  ProgressRates rates;
  if (done > 0 && seconds > 0) {
    rates.tokens_per_s = static_cast<double>(done) / seconds;
    rates.left_s = static_cast<double>(total - done) / rates.tokens_per_s;
  }
  progress->update_job("prefill", done, total, rates);
}

}  // namespace

Session::Session(const Model& model) : model_(&model), state_(model.new_sequence()) {}

Session::Session(const Model& model, const SequenceSnapshot& snapshot)
    : model_(&model), state_(snapshot.state), ids_(snapshot.ids), logits_(snapshot.logits) {
  TREFOIL_CHECK(state_.position == position());
  TREFOIL_CHECK(static_cast<int64_t>(state_.layers.size()) == model.config().num_hidden_layers);
}

void Session::check(std::span<const int32_t> ids) const {
  require_whole();
  const ModelConfig& config = model_->config();
  if (static_cast<int64_t>(ids.size()) > room()) {
    fail(ErrorCode::kInvalidArgument, "{} tokens after {} exceed max_position_embeddings {}", ids.size(), position(),
         config.max_position_embeddings);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= config.vocab_size) {
      fail(ErrorCode::kInvalidArgument, "token {} of the input is id {}, expected 0 <= id < vocab_size {}", i, ids[i],
           config.vocab_size);
    }
  }
}

void Session::run(std::span<const int32_t> ids) {
  if (ids.empty()) return;
  is_spent_ = true;  // until the pass is through: one that throws leaves some layers ahead of others
  logits_ = model_->forward(ids, state_, true);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  is_spent_ = false;
}

void Session::extend(std::span<const int32_t> ids) {
  check(ids);
  run(ids);
}

int64_t Session::extend(std::span<const int32_t> ids, const PrefillOptions& options) {
  TREFOIL_CHECK(options.chunk > 0);
  check(ids);
  const int64_t total = static_cast<int64_t>(ids.size());
  const auto start = std::chrono::steady_clock::now();
  for (int64_t done = 0; done < total;) {
    report(options.progress, done, total, seconds_since(start));
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) return done;
    const int64_t count = std::min(options.chunk, total - done);
    run(ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count)));
    done += count;
  }
  report(options.progress, total, total, seconds_since(start));
  return total;
}

SequenceSnapshot Session::snapshot() const {
  require_whole();
  return {ids_, state_, logits_};
}

void Session::require_whole() const {
  if (is_spent_) fail(ErrorCode::kInvalidArgument, "the sequence cannot go on: an earlier step failed in the middle");
}

bool SnapshotStore::keep(SequenceSnapshot snapshot) {
  if (snapshot.bytes() > budget_bytes_) return false;
  std::erase_if(entries_, [&](const Entry& entry) { return entry->ids == snapshot.ids; });
  entries_.push_back(std::make_shared<const SequenceSnapshot>(std::move(snapshot)));
  while (bytes() > budget_bytes_) entries_.erase(entries_.begin());
  return true;
}

SnapshotStore::Entry SnapshotStore::find(std::span<const int32_t> ids) {
  auto best = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const std::vector<int32_t>& own = (*entry)->ids;
    if (own.size() > ids.size() || !std::equal(own.begin(), own.end(), ids.begin())) continue;
    if (best == entries_.end() || own.size() > (*best)->ids.size()) best = entry;
  }
  if (best == entries_.end()) return nullptr;
  std::rotate(best, best + 1, entries_.end());
  return entries_.back();
}

uint64_t SnapshotStore::bytes() const {
  uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry->bytes();
  return sum;
}

Session resume(const Model& model, SnapshotStore& store, std::span<const int32_t> ids) {
  const SnapshotStore::Entry entry = store.find(ids);
  return entry != nullptr ? Session(model, *entry) : Session(model);
}

}  // namespace trefoil
