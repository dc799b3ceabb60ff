#include "plan/sequence_state.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace trefoil {
namespace {

uint64_t u(int64_t value) {
  return static_cast<uint64_t>(value);
}

int64_t kda_layers(const ModelConfig& config) {
  return std::count(config.attention.begin(), config.attention.end(), AttentionKind::kKda);
}

}  // namespace

SequenceStateSize sequence_state_size(const ModelConfig& config, uint64_t cache_element_bytes) {
  const uint64_t kda = u(kda_layers(config)), mla = u(config.num_hidden_layers) - kda;
  const uint64_t width = u(config.kda_num_heads) * u(config.kda_head_dim);
  SequenceStateSize size;
  size.kda_state_bytes = kda * width * u(config.kda_head_dim) * 4;
  size.conv_bytes = kda * 3 * width * (u(config.short_conv_kernel_size) - 1) * cache_element_bytes;
  size.latent_token_bytes = mla * u(config.kv_lora_rank + config.qk_rope_head_dim) * cache_element_bytes;
  return size;
}

std::vector<PlanLine> sequence_state_lines(const ModelConfig& config, int64_t context) {
  const SequenceStateSize bf16 = sequence_state_size(config, 2);
  const SequenceStateSize f32 = sequence_state_size(config, 4);
  const int64_t kda = kda_layers(config);
  return {
      {"KDA state", bf16.kda_state_bytes,
       fmt::format("{} layers x {} heads x {} x {} x f32, whatever the length", kda, config.kda_num_heads,
                   config.kda_head_dim, config.kda_head_dim)},
      {"convolution history", bf16.conv_bytes,
       fmt::format("{} layers x 3 x {} channels x {} inputs x bf16", kda, config.kda_num_heads * config.kda_head_dim,
                   config.short_conv_kernel_size - 1)},
      {"MLA latent cache", bf16.latent_token_bytes * u(context),
       fmt::format("{} tokens x {} bytes: {} layers x ({} + {}) x bf16", format_count(u(context)),
                   bf16.latent_token_bytes, config.num_hidden_layers - kda, config.kv_lora_rank,
                   config.qk_rope_head_dim)},
      {"the same as this program keeps it", f32.at(context), "history and latent cache in f32, for all three together"},
  };
}

}  // namespace trefoil
