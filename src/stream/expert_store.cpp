#include "stream/expert_store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "stream/expert_cache.h"

namespace trefoil {
namespace {

using Clock = std::chrono::steady_clock;
using Slot = ExpertCache::Slot;
using SlotState = ExpertCache::SlotState;

int64_t slots_of_budget(uint64_t budget_bytes, uint64_t slot_bytes) {
  const uint64_t slots = budget_bytes / slot_bytes;
  if (slots < 2) {
    fail(
        ErrorCode::kOverBudget,
        "a budget of {} bytes holds {} experts of {} bytes; two are the least, one to compute with and one to read: {} "
        "bytes",
        format_count(budget_bytes), slots, format_count(slot_bytes), format_count(2 * slot_bytes));
  }
  return static_cast<int64_t>(slots);
}

// A read of one expert on its way.
struct Load {
  Slot* slot = nullptr;
  size_t parts_left = 0;
  std::vector<DriveReader::Id> parts;
  std::string error;  // of the first part that failed
};

}  // namespace

// One expert of a step.
struct ExpertStore::Wanted {
  enum class Status {
    kQueued,  // has no slot yet
    kHeld,    // its slot is pinned for the step: being read or ready
    kFailed,
    kTaken,
  };
  int64_t key = 0;
  Status status = Status::kQueued;
  Slot* slot = nullptr;
  std::string error;
};

struct ExpertStore::Step {
  std::vector<Wanted> wanted;  // ascending
  int64_t remaining = 0;
};

// All members but the layout and the reader belong to the mutex.
struct ExpertStore::State {
  State(ExpertLayout the_layout, const ExpertStoreOptions& the_options);
  ~State();

  const ExpertLayout layout;
  const ExpertStoreOptions options;
  std::unique_ptr<DriveReader> reader;

  mutable std::mutex mutex;
  std::condition_variable changed;
  ExpertCache cache;
  std::map<int64_t, Load> loads;                      // by key
  std::map<int64_t, std::vector<int64_t>> hinted_of;  // layer -> keys hinted since its last step
  std::vector<Step*> steps;                           // begun and alive
  ExpertStoreCounters counters;
  bool stopping = false;

  void start_load(int64_t key, Slot* slot, DriveReader::Priority priority);
  void part_done(int64_t key, const std::string* error);
  void load_done(int64_t key, const Load& load);
  void fill_slots();
  void end_hints(int64_t layer, std::span<const int64_t> keys);
  void want(Wanted& wanted);
  void unpin(Slot& slot);
  bool make_room(Step& step, const Wanted* wanted);
  Wanted& await(std::unique_lock<std::mutex>& lock, Step& step, Wanted* only);
  static Wanted* arrived(Step& step, Wanted* only);
  [[noreturn]] void give_up(const Step& step, const Wanted* only) const;
};

struct ExpertLease::Hold {
  std::shared_ptr<ExpertStore::State> state;
  Slot* slot = nullptr;
  int64_t key = 0;
  StoredMatrix matrix[3];

  Hold(std::shared_ptr<ExpertStore::State> the_state, Slot* the_slot)
      : state(std::move(the_state)), slot(the_slot), key(the_slot->key) {
    for (size_t i = 0; i < 3; ++i)
      matrix[i] = state->layout.matrix(key, static_cast<ExpertMatrix>(i), slot->memory.bytes());
  }
  ~Hold() {
    const std::lock_guard lock(state->mutex);
    state->unpin(*slot);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

// ---- loading ----

ExpertStore::State::State(ExpertLayout the_layout, const ExpertStoreOptions& the_options)
    : layout(std::move(the_layout)),
      options(the_options),
      reader(DriveReader::open(layout.files(), options.reader)),
      cache(layout.summary().slot_bytes, slots_of_budget(options.budget_bytes, layout.summary().slot_bytes),
            options.passing_slots, ResidencyPolicy(layout.num_keys(), layout.num_experts(), 0, options.half_life),
            {.add = [this](MutableBytes memory) { return reader->add_buffer(memory); },
             .remove =
                 [this](int buffer) {
                   if (reader != nullptr) reader->remove_buffer(buffer);
                 }}) {}

ExpertStore::State::~State() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  reader.reset();  // reads under way end before their memory goes
}

void ExpertStore::State::start_load(int64_t key, Slot* slot, DriveReader::Priority priority) {
  const ExpertPlace& place = layout.place(key);
  Load& load = loads[key];
  load = {.slot = slot, .parts_left = place.extents.size(), .parts = {}, .error = {}};
  for (const FileExtent& extent : place.extents) {
    const DriveRead read = {.file = layout.file(key, extent),
                            .offset = extent.offset,
                            .size = extent.size,
                            .into = slot->memory.bytes().subspan(extent.slot_offset),
                            .buffer = slot->buffer};
    load.parts.push_back(
        reader->submit(read, priority, [this, key](const std::string* error) { part_done(key, error); }));
  }
}

void ExpertStore::State::part_done(int64_t key, const std::string* error) {
  const std::lock_guard lock(mutex);
  Load& load = loads.at(key);
  if (error != nullptr && load.error.empty()) load.error = *error;
  if (--load.parts_left > 0) return;
  const Load ended = std::move(load);
  loads.erase(key);
  load_done(key, ended);
}

void ExpertStore::State::load_done(int64_t key, const Load& load) {
  if (load.error.empty()) {
    cache.set_ready(*load.slot);
  } else {
    ++counters.failures;
    for (Step* step : steps) {
      for (Wanted& wanted : step->wanted) {
        if (wanted.key != key || wanted.status != Wanted::Status::kHeld) continue;
        wanted.status = Wanted::Status::kFailed;
        wanted.slot = nullptr;
        wanted.error = layout.name(key) + ": " + load.error;
        --load.slot->pins;  // set_failed() sees to the slot
      }
    }
    cache.set_failed(*load.slot);
  }
  fill_slots();
  changed.notify_all();
}

// Gives slots to what waits for one.
void ExpertStore::State::fill_slots() {
  if (stopping) return;
  for (Step* step : steps) {
    for (Wanted& wanted : step->wanted) {
      if (wanted.status != Wanted::Status::kQueued) continue;
      if (cache.find(wanted.key) == nullptr) {
        Slot* slot = cache.take(wanted.key, false);
        if (slot == nullptr) return;
        start_load(wanted.key, slot, DriveReader::Priority::kNeeded);
      }
      wanted.slot = cache.find(wanted.key);
      wanted.status = Wanted::Status::kHeld;
      cache.pin(*wanted.slot);
    }
  }
}

void ExpertStore::State::unpin(Slot& slot) {
  cache.unpin(slot);
  fill_slots();
  changed.notify_all();
}

// ---- steps ----

// The step of `layer` that hints were for is here. Those that it does not use lose their claim, and their reads if they
// have not begun.
void ExpertStore::State::end_hints(int64_t layer, std::span<const int64_t> keys) {
  const auto found = hinted_of.find(layer);
  if (found == hinted_of.end()) return;
  for (const int64_t key : found->second) {
    Slot* slot = cache.find(key);
    if (slot == nullptr || !slot->is_hinted || std::binary_search(keys.begin(), keys.end(), key)) continue;
    cache.clear_hint(*slot);
    const auto loading = loads.find(key);
    if (loading == loads.end() || slot->pins > 0) continue;
    if (!reader->cancel(loading->second.parts)) continue;
    ++counters.hints_canceled;
    counters.bytes_hinted -= layout.place(key).tensor_bytes;
    loads.erase(loading);
    cache.set_failed(*slot);
  }
  hinted_of.erase(found);
}

void ExpertStore::State::want(Wanted& wanted) {
  Slot* slot = cache.find(wanted.key);
  if (slot == nullptr) {
    ++counters.misses;
    return;
  }
  if (slot->state == SlotState::kReady) {
    ++counters.hits;
    if (slot->is_hinted) ++counters.hinted_hits;
  } else {
    const std::vector<DriveReader::Id>& parts = loads.at(wanted.key).parts;
    const bool has_begun =
        std::any_of(parts.begin(), parts.end(), [&](DriveReader::Id part) { return reader->has_begun(part); });
    ++(has_begun ? counters.late_hits : counters.misses);
    for (const DriveReader::Id part : parts) reader->promote(part);
  }
  wanted.slot = slot;
  wanted.status = Wanted::Status::kHeld;
  cache.pin(*slot);
}

// An expert of the step that can be handed over, or has failed; null when none can. Those that were there before come
// first, the others in the order in which their reads ended: a slot's last use says both.
ExpertStore::Wanted* ExpertStore::State::arrived(Step& step, Wanted* only) {
  Wanted* first = nullptr;
  Wanted* failed = nullptr;
  for (Wanted& wanted : step.wanted) {
    if (only != nullptr && &wanted != only) continue;
    if (wanted.status == Wanted::Status::kFailed && failed == nullptr) failed = &wanted;
    if (wanted.status != Wanted::Status::kHeld || wanted.slot->state != SlotState::kReady) continue;
    if (first == nullptr || wanted.slot->last_use < first->slot->last_use) first = &wanted;
  }
  return first != nullptr ? first : failed;
}

// The step waits, and no slot will come of itself: none of its own reads is under way that could end. A resident must
// go, or for the sake of the one expert that is asked for, another of the step that is there too early.
bool ExpertStore::State::make_room(Step& step, const Wanted* only) {
  Wanted* queued = nullptr;
  Wanted* spare = nullptr;
  for (Wanted& wanted : step.wanted) {
    const bool asked_for = only == nullptr || &wanted == only;
    if (wanted.status == Wanted::Status::kHeld && wanted.slot->state == SlotState::kReading) return false;
    if (wanted.status == Wanted::Status::kQueued && asked_for && queued == nullptr) queued = &wanted;
    if (wanted.status == Wanted::Status::kHeld && !asked_for && wanted.slot->pins == 1) spare = &wanted;
  }
  if (queued == nullptr || stopping) return false;
  Slot* slot = cache.take(queued->key, false);
  if (slot == nullptr) slot = cache.take_from_residents(queued->key);
  if (slot == nullptr && spare != nullptr) {
    spare->status = Wanted::Status::kQueued;
    cache.unpin(*std::exchange(spare->slot, nullptr));
    slot = cache.take(queued->key, false);
    if (slot == nullptr) slot = cache.take_from_residents(queued->key);
  }
  if (slot == nullptr) return false;
  start_load(queued->key, slot, DriveReader::Priority::kNeeded);
  queued->slot = slot;
  queued->status = Wanted::Status::kHeld;
  cache.pin(*slot);
  return true;
}

void ExpertStore::State::give_up(const Step& step, const Wanted* only) const {
  const auto waiting = std::find_if(step.wanted.begin(), step.wanted.end(), [&](const Wanted& wanted) {
    return only != nullptr ? &wanted == only
                           : wanted.status == Wanted::Status::kQueued || wanted.status == Wanted::Status::kHeld;
  });
  if (waiting->status == Wanted::Status::kQueued) {
    fail(ErrorCode::kOverBudget, "{}: no slot came free in {} s: the budget holds {}, {} are in use by leases",
         layout.name(waiting->key), options.wait_limit_seconds, cache.max_slots(), cache.num_pinned());
  }
  const FileExtent& extent = layout.place(waiting->key).extents.front();
  fail(ErrorCode::kIo, "{}: {}: {} bytes wanted at offset {}: the read has not come back in {} s",
       layout.name(waiting->key), layout.files()[layout.file(waiting->key, extent)].string(), extent.size,
       extent.offset, options.wait_limit_seconds);
}

ExpertStore::Wanted& ExpertStore::State::await(std::unique_lock<std::mutex>& lock, Step& step, Wanted* only) {
  const Clock::time_point start = Clock::now();
  const auto limit =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.wait_limit_seconds));
  Wanted* found = nullptr;
  bool in_time = true;
  while ((found = arrived(step, only)) == nullptr && in_time) {
    if (make_room(step, only)) continue;
    in_time = changed.wait_until(lock, limit) == std::cv_status::no_timeout;
  }
  counters.wait_seconds += std::chrono::duration<double>(Clock::now() - start).count();
  if (found == nullptr) give_up(step, only);
  return *found;
}

// ---- the interface ----

int64_t ExpertLease::layer() const {
  return hold_->state->layout.layer_of(hold_->key);
}
int64_t ExpertLease::expert() const {
  return hold_->state->layout.expert_of(hold_->key);
}
const StoredMatrix& ExpertLease::matrix(ExpertMatrix which) const {
  return hold_->matrix[static_cast<size_t>(which)];
}

ExpertStore::ExpertStore(ExpertLayout layout, const ExpertStoreOptions& options)
    : state_(std::make_shared<State>(std::move(layout), options)) {}
ExpertStore::~ExpertStore() = default;

void ExpertStore::expect(int64_t layer, std::span<const int32_t> experts) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  const bool busy = std::any_of(state.steps.begin(), state.steps.end(), [](const Step* step) {
    return std::any_of(step->wanted.begin(), step->wanted.end(),
                       [](const Wanted& wanted) { return wanted.status == Wanted::Status::kQueued; });
  });
  for (const int32_t expert : experts) {
    const int64_t key = state.layout.key(layer, expert);
    if (state.cache.find(key) != nullptr) continue;
    Slot* slot = busy ? nullptr : state.cache.take(key, true);
    if (slot == nullptr) {
      ++state.counters.hints_dropped;
      continue;
    }
    ++state.counters.hints;
    state.counters.bytes_hinted += state.layout.place(key).tensor_bytes;
    slot->is_hinted = true;
    state.hinted_of[layer].push_back(key);
    state.start_load(key, slot, DriveReader::Priority::kHinted);
  }
}

ExpertStore::Batch ExpertStore::begin(int64_t layer, std::span<const int32_t> experts) {
  State& state = *state_;
  auto step = std::make_unique<Step>();
  std::vector<int64_t> keys;
  for (const int32_t expert : experts) {
    keys.push_back(state.layout.key(layer, expert));
    TREFOIL_CHECK(keys.size() < 2 || keys[keys.size() - 2] < keys.back());
    step->wanted.push_back({.key = keys.back(), .status = {}, .slot = nullptr, .error = {}});
  }
  step->remaining = static_cast<int64_t>(keys.size());
  const std::lock_guard lock(state.mutex);
  for (Wanted& wanted : step->wanted) state.want(wanted);
  state.end_hints(layer, keys);
  state.cache.use(keys);
  state.steps.push_back(step.get());
  state.fill_slots();
  return {state_, std::move(step)};
}

ExpertStore::Batch::Batch(std::shared_ptr<State> state, std::unique_ptr<Step> step)
    : state_(std::move(state)), step_(std::move(step)) {}
ExpertStore::Batch::Batch(Batch&&) noexcept = default;

ExpertStore::Batch::~Batch() {
  if (step_ == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  std::erase(state_->steps, step_.get());
  for (const Wanted& wanted : step_->wanted) {
    if (wanted.status == Wanted::Status::kHeld) state_->unpin(*wanted.slot);
    if (wanted.status == Wanted::Status::kQueued) state_->cache.forget(wanted.key);  // it was not read after all
  }
}

int64_t ExpertStore::Batch::remaining() const {
  return step_->remaining;
}

ExpertLease ExpertStore::Batch::next() {
  TREFOIL_CHECK(step_->remaining > 0);
  return take(nullptr);
}

ExpertLease ExpertStore::Batch::get(int32_t expert) {
  const auto found = std::find_if(step_->wanted.begin(), step_->wanted.end(), [&](const Wanted& wanted) {
    return state_->layout.expert_of(wanted.key) == expert && wanted.status != Wanted::Status::kTaken;
  });
  TREFOIL_CHECK(found != step_->wanted.end());
  return take(&*found);
}

ExpertLease ExpertStore::Batch::take(Wanted* only) {
  std::unique_lock lock(state_->mutex);
  Wanted& wanted = state_->await(lock, *step_, only);
  const bool failed = wanted.status == Wanted::Status::kFailed;
  wanted.status = Wanted::Status::kTaken;
  --step_->remaining;
  if (failed) throw Error(ErrorCode::kIo, wanted.error);
  if (wanted.slot->is_fresh) state_->counters.bytes_used += state_->layout.place(wanted.key).tensor_bytes;
  state_->cache.touch(*wanted.slot);
  return ExpertLease(std::make_shared<const ExpertLease::Hold>(state_, wanted.slot));  // the step's pin is the lease's
}

void ExpertStore::set_budget(uint64_t bytes) {
  const int64_t slots = slots_of_budget(bytes, state_->layout.summary().slot_bytes);
  const std::lock_guard lock(state_->mutex);
  state_->cache.set_max_slots(slots);
  state_->fill_slots();
  state_->changed.notify_all();
}

int64_t ExpertStore::max_slots() const {
  const std::lock_guard lock(state_->mutex);
  return state_->cache.max_slots();
}

uint64_t ExpertStore::memory_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->cache.memory_bytes();
}

ExpertStoreCounters ExpertStore::counters() const {
  const std::lock_guard lock(state_->mutex);
  ExpertStoreCounters counters = state_->counters;
  const DriveReaderCounters reader = state_->reader->counters();
  counters.bytes_read = reader.bytes;
  counters.reads = reader.reads;
  counters.read_seconds = reader.busy_seconds;
  counters.under_way = state_->loads.size();
  counters.evictions = state_->cache.evictions();
  return counters;
}

const ExpertLayout& ExpertStore::layout() const {
  return state_->layout;
}

std::string ExpertStore::report() const {
  const ExpertLayoutSummary& summary = state_->layout.summary();
  return fmt::format("{}; {}; {} of {} experts at most in {:.2f} GiB", state_->reader->report(), summary.text,
                     format_count(static_cast<uint64_t>(max_slots())),
                     format_count(static_cast<uint64_t>(summary.num_experts)),
                     static_cast<double>(max_slots()) * static_cast<double>(summary.slot_bytes) / (1 << 30));
}

}  // namespace trefoil
