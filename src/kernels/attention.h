// Causal softmax attention of one head over everything a sequence has seen, in the two forms of MLA.
// docs/architecture.md.
//   score[t, s] = scale * q[t] . k[s]  for s <= first + t;  p = r(softmax(score[t]));  out[t] = sum_s p[s] v[s], s
//   ascending
//
// A token's result depends on its own query and the keys up to itself alone, not on how many tokens run together.
// Softmax in f32; the probabilities are rounded as `rounding` says, `out` is left in f32 for the caller to round.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rounding.h"

namespace trefoil {

struct AttentionArgs {
  const float* q = nullptr;  // [tokens, key_dim]
  const float* k = nullptr;  // [first + tokens, key_dim]
  const float* v = nullptr;  // [first + tokens, v_stride], the first value_dim of each row are used
  float* out = nullptr;      // [tokens, value_dim]
  int64_t tokens = 0;        // new tokens, at positions first, first + 1, ...
  int64_t first = 0;         // tokens the sequence had seen before
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t v_stride = 0;
  float scale = 0;
  Rounding rounding = Rounding::kNone;
};

// `scores` is scratch that grows to a few rows of first + tokens floats.
void causal_attention(const AttentionArgs& args, std::vector<float>& scores);

}  // namespace trefoil
