// What one sequence carries from token to token. docs/architecture.md, "State".
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"
#include "trefoil/plan.h"

namespace trefoil {

struct SequenceStateSize {
  uint64_t kda_state_bytes = 0;     // f32: KDA layers x heads x head_dim x head_dim
  uint64_t conv_bytes = 0;          // KDA layers x 3 x heads x head_dim x (kernel - 1)
  uint64_t latent_token_bytes = 0;  // MLA layers x (kv_lora_rank + qk_rope_head_dim), per token

  uint64_t fixed_bytes() const { return kda_state_bytes + conv_bytes; }
  uint64_t at(int64_t tokens) const { return fixed_bytes() + latent_token_bytes * static_cast<uint64_t>(tokens); }
};

// `cache_element_bytes`: of the convolution history and the latent cache, 2 (bf16) or 4 (f32, as src/model keeps them).
// The recurrent state is f32 in both.
SequenceStateSize sequence_state_size(const ModelConfig& config, uint64_t cache_element_bytes);

std::vector<PlanLine> sequence_state_lines(const ModelConfig& config, int64_t context);

}  // namespace trefoil
