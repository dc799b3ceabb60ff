// For tests that hold logits of one run against those of another: a prompt, ways to cut it, bits.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "model/model.h"

namespace trefoil::testing {

inline const std::vector<int32_t> kPromptIds = {521, 1342, 1073, 949, 1671, 263, 3028, 77, 2210, 14, 901};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Logits of all tokens of kPromptIds, run in calls of so many tokens each.
inline std::vector<float> logits_in_chunks(const Model& model, const std::vector<size_t>& chunks) {
  SequenceState state = model.new_sequence();
  std::vector<float> all;
  size_t at = 0;
  for (const size_t count : chunks) {
    const std::vector<float> logits = model.forward(std::span(kPromptIds).subspan(at, count), state);
    all.insert(all.end(), logits.begin(), logits.end());
    at += count;
  }
  return all;
}

}  // namespace trefoil::testing
