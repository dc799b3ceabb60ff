#include "model/model_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/sha256.h"

namespace trefoil {
namespace {

constexpr uint64_t kPieceBytes = 4096;

// An option that changes bits belongs into the fingerprint; lookahead does not.
static_assert(sizeof(ForwardOptions) == 5 * sizeof(int), "a member of ForwardOptions is not in the fingerprint");

std::string described(const ModelConfig& c) {
  std::string text = fmt::format(
      "{} {} {} {} {} {} mla {} {} {} {} {} {} kda {} {} {} {:a} moe {} {} {} {} {} {:a} {:a} {:a} {} {:a} {} "
      "attention ",
      c.model_type, c.vocab_size, c.hidden_size, c.num_hidden_layers, c.intermediate_size, c.first_k_dense_replace,
      c.num_attention_heads, c.q_lora_rank, c.kv_lora_rank, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim,
      c.kda_num_heads, c.kda_head_dim, c.short_conv_kernel_size, c.gate_lower_bound, c.num_experts,
      c.num_experts_per_token, c.num_shared_experts, c.moe_intermediate_size, c.routed_expert_hidden_size,
      c.routed_scaling_factor, c.activation_situ_beta, c.activation_situ_linear_beta, c.attn_res_block_size,
      c.rms_norm_eps, c.max_position_embeddings);
  for (const AttentionKind kind : c.attention) text += kind == AttentionKind::kKda ? 'k' : 'm';
  return text;
}

// Enough to tell checkpoints of the same layout and other values apart.
void add_samples(const Checkpoint& checkpoint, Sha256* hash) {
  std::vector<std::vector<const TensorRef*>> by_shard(checkpoint.shards().size());
  for (const TensorRef& tensor : checkpoint.tensors()) by_shard[tensor.shard].push_back(&tensor);
  std::vector<std::byte> piece;
  for (const auto& tensors : by_shard) {
    if (tensors.empty()) continue;
    for (const TensorRef* tensor : {tensors.front(), tensors[tensors.size() / 2], tensors.back()}) {
      const uint64_t size = tensor->info.size();
      piece.resize(std::min(size, kPieceBytes));
      checkpoint.read(*tensor, (size - piece.size()) / 2, piece);
      hash->update(piece);
    }
  }
}

}  // namespace

std::string model_fingerprint(const ModelConfig& config, const Checkpoint& checkpoint, const ForwardOptions& options,
                              TrunkForm trunk) {
  Sha256 hash;
  hash.update(
      as_bytes_of(fmt::format("trefoil sequence state\n{}\nnumerics {} kda {} mla {} kernels {} trunk {}\n",
                              described(config), static_cast<int>(options.numerics), static_cast<int>(options.kda),
                              static_cast<int>(options.mla), to_string(options.kernels), static_cast<int>(trunk))));
  std::string line;
  for (const TensorRef& tensor : checkpoint.tensors()) {
    line.clear();
    fmt::format_to(std::back_inserter(line), "{} {} {} {}", tensor.info.name, static_cast<int>(tensor.info.dtype),
                   tensor.shard, tensor.info.size());
    for (const int64_t dim : tensor.info.shape) fmt::format_to(std::back_inserter(line), " {}", dim);
    line += '\n';
    hash.update(as_bytes_of(line));
  }
  add_samples(checkpoint, &hash);
  return hash.hex();
}

}  // namespace trefoil
