// Where the time of a forward pass goes, and how many bytes of weights and state each part must read. For `bench model`;
// a model without a profile does not look at the clock.
#pragma once

#include <array>
#include <cstdint>

#include "base/stopwatch.h"

namespace trefoil {

enum class ForwardPart {
  kEmbedding,
  kAttnRes,          // mixes and norms before attention and FFN
  kAttnProjections,  // Linears of KDA and MLA
  kKdaCore,          // convolutions, decay, recurrence, gated norm
  kMlaCore,          // scores, softmax, values; kv_b with them when absorbed
  kDenseMlp,
  kRouter,
  kLatent,  // routed_expert_down_proj and up_proj, norm
  kExperts,
  kSharedExperts,
  kLmHead,  // final mix, norm, lm_head
  kOther,
};
constexpr size_t kNumForwardParts = static_cast<size_t>(ForwardPart::kOther) + 1;
const char* to_string(ForwardPart component);

struct Profile {
  struct Entry {
    double seconds = 0;
    uint64_t bytes = 0;
  };
  std::array<Entry, kNumForwardParts> entries;
  ForwardPart current = ForwardPart::kOther;

  Entry& of(ForwardPart component) { return entries[static_cast<size_t>(component)]; }
  void add_bytes(uint64_t bytes) { of(current).bytes += bytes; }
};

// The time of its life belongs to `component`; an inner scope's is taken out of the outer one. `profile` may be null.
class ProfileScope {
 public:
  ProfileScope(Profile* profile, ForwardPart component) : profile_(profile) {
    if (profile_ == nullptr) return;
    outer_ = profile_->current;
    profile_->current = component;
    watch_ = Stopwatch();
  }
  ~ProfileScope() {
    if (profile_ == nullptr) return;
    const double seconds = watch_.seconds();
    profile_->of(profile_->current).seconds += seconds;
    profile_->of(outer_).seconds -= seconds;
    profile_->current = outer_;
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profile* profile_;
  ForwardPart outer_ = ForwardPart::kOther;
  Stopwatch watch_;
};

}  // namespace trefoil
