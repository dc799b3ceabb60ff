#include "stream/expert_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace trefoil {

ExpertCache::ExpertCache(uint64_t slot_bytes, int64_t max_slots, int64_t passing, ResidencyPolicy policy,
                         Buffers buffers)
    : slot_bytes_(slot_bytes),
      max_slots_(max_slots),
      passing_(passing),
      policy_(std::move(policy)),
      buffers_(std::move(buffers)),
      by_key_(static_cast<size_t>(policy_.num_keys())) {
  TREFOIL_CHECK(max_slots_ >= 2);
  policy_.set_capacity(capacity());
  add_slots();
}

ExpertCache::~ExpertCache() {
  for (const auto& slot : slots_) {
    if (slot->buffer >= 0) buffers_.remove(slot->buffer);
  }
}

int64_t ExpertCache::capacity() const {
  constexpr int64_t kMostPassing = 48;  // three times what one token uses of a layer: in use, being read, hinted
  const int64_t passing = passing_ > 0 ? passing_ : std::min(max_slots_ / 4, kMostPassing);
  return max_slots_ - std::clamp<int64_t>(passing, 2, max_slots_);
}

int64_t ExpertCache::num_pinned() const {
  return std::count_if(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->pins > 0; });
}

void ExpertCache::use(std::span<const int64_t> keys) {
  const std::vector<int64_t> replaced = policy_.use(keys);
  for (const auto& changed : {std::span<const int64_t>(replaced), keys}) {
    for (const int64_t key : changed) {
      if (find(key) != nullptr) refresh(*find(key));
    }
  }
}

// ---- giving slots away ----

ExpertCache::Slot* ExpertCache::take(int64_t key, bool for_hint) {
  if (!empty_.empty()) {
    Slot* slot = empty_.back();
    empty_.pop_back();
    return assign(slot, key);
  }
  if (idle_.empty()) return nullptr;
  const auto [is_hinted, last_use, slot] = *idle_.begin();
  if (for_hint && is_hinted) return nullptr;
  return assign(slot, key);
}

ExpertCache::Slot* ExpertCache::take_from_residents(int64_t key) {
  Slot* slot = drop_resident(key);
  return slot == nullptr ? nullptr : assign(slot, key);
}

// The slot of the resident with the lowest score that is not in use, and is no resident any more.
ExpertCache::Slot* ExpertCache::drop_resident(int64_t but_for) {
  const int64_t key = policy_.drop_lowest([&](int64_t resident) {
    const Slot* slot = find(resident);
    return resident != but_for && slot != nullptr && slot->state == SlotState::kReady && slot->pins == 0;
  });
  return key < 0 ? nullptr : find(key);
}

ExpertCache::Slot* ExpertCache::assign(Slot* slot, int64_t key) {
  TREFOIL_CHECK(slot->pins == 0 && slot->state != SlotState::kReading && find(key) == nullptr);
  detach(*slot);
  if (!slot->has_pages) {
    slot->has_pages = true;
    ++num_with_pages_;
    slot->buffer = buffers_.add(slot->memory.bytes());
  }
  slot->key = key;
  slot->state = SlotState::kReading;
  slot->is_fresh = true;
  by_key_[static_cast<size_t>(key)] = slot;
  return slot;
}

void ExpertCache::add_slots() {
  while (num_slots() < max_slots_) {
    auto slot = std::make_unique<Slot>();
    slot->memory = PageBuffer(slot_bytes_);
    empty_.push_back(slot.get());
    slots_.push_back(std::move(slot));
  }
}

// The slot holds nothing any more.
void ExpertCache::detach(Slot& slot) {
  leave_idle(slot);
  if (slot.key >= 0) {
    by_key_[static_cast<size_t>(slot.key)] = nullptr;
    if (slot.state == SlotState::kReady) ++evictions_;
  }
  slot.key = -1;
  slot.state = SlotState::kEmpty;
  slot.is_hinted = false;
  slot.is_fresh = false;
}

void ExpertCache::leave_idle(Slot& slot) {
  if (slot.is_idle) idle_.erase({slot.is_hinted, slot.last_use, &slot});
  slot.is_idle = false;
}

// Puts the slot among the idle ones, or takes it out, as its state now says.
void ExpertCache::refresh(Slot& slot) {
  leave_idle(slot);
  if (slot.state != SlotState::kReady || slot.pins > 0 || policy_.is_resident(slot.key)) return;
  slot.is_idle = true;
  idle_.emplace(slot.is_hinted, slot.last_use, &slot);
}

// ---- what happens to a slot ----

void ExpertCache::pin(Slot& slot) {
  ++slot.pins;
  refresh(slot);
}

void ExpertCache::unpin(Slot& slot) {
  TREFOIL_CHECK(slot.pins > 0);
  if (--slot.pins > 0) return;
  if (slot.state == SlotState::kEmpty) empty_.push_back(&slot);
  refresh(slot);
  trim();
}

void ExpertCache::set_ready(Slot& slot) {
  TREFOIL_CHECK(slot.state == SlotState::kReading);
  slot.state = SlotState::kReady;
  slot.last_use = ++clock_;
  refresh(slot);
  trim();
}

void ExpertCache::set_failed(Slot& slot) {
  TREFOIL_CHECK(slot.state == SlotState::kReading);
  policy_.forget(slot.key);
  detach(slot);
  if (slot.pins == 0) empty_.push_back(&slot);
  trim();
}

void ExpertCache::touch(Slot& slot) {
  leave_idle(slot);
  slot.last_use = ++clock_;
  slot.is_hinted = false;
  slot.is_fresh = false;
  refresh(slot);
}

void ExpertCache::clear_hint(Slot& slot) {
  leave_idle(slot);
  slot.is_hinted = false;
  refresh(slot);
}

// ---- the budget ----

void ExpertCache::set_max_slots(int64_t max_slots) {
  TREFOIL_CHECK(max_slots >= 2);
  const int64_t before = std::exchange(max_slots_, max_slots);
  try {
    add_slots();
  } catch (const Error&) {
    set_max_slots(before);  // as if nothing had been asked
    throw;
  }
  policy_.set_capacity(capacity());
  while (policy_.num_resident() > policy_.capacity()) {
    const int64_t key = policy_.drop_lowest([](int64_t) { return true; });
    if (find(key) != nullptr) refresh(*find(key));
  }
  trim();
}

void ExpertCache::trim() {
  while (num_slots() > max_slots_) {
    if (!empty_.empty()) {
      Slot* slot = empty_.back();
      empty_.pop_back();
      remove(*slot);
    } else if (!idle_.empty()) {
      Slot* slot = std::get<2>(*idle_.begin());
      detach(*slot);
      remove(*slot);
    } else if (Slot* slot = drop_resident(-1)) {
      detach(*slot);
      remove(*slot);
    } else {
      return;  // the others go when their pins or reads end
    }
  }
}

void ExpertCache::remove(Slot& slot) {
  if (slot.buffer >= 0) buffers_.remove(slot.buffer);
  if (slot.has_pages) --num_with_pages_;
  const auto found =
      std::find_if(slots_.begin(), slots_.end(), [&](const auto& owned) { return owned.get() == &slot; });
  std::swap(*found, slots_.back());
  slots_.pop_back();
}

}  // namespace trefoil
