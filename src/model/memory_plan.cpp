// plan_memory() of engine.h.
#include <algorithm>

#include "base/error.h"
#include "model/engine.h"
#include "model/tile_storage.h"
#include "stream/expert_layout.h"

namespace trefoil {
namespace {

constexpr uint64_t kProgram = 32'000'000;          // code, libraries, heaps
constexpr uint64_t kHeaderBytesPerTensor = 700;    // a tensor's entries in index, header and model
constexpr double kGrowth = 1.25;                   // of a vector that grows by a quarter
constexpr int64_t kRowsOfScores = 16;              // kernels/attention.cpp computes so many tokens' scores at once
constexpr int64_t kExpertBatchBytes = 90'000'000;  // inputs, hidden values and outputs of a batch, at most

uint64_t bytes_of_floats(int64_t count) {
  return static_cast<uint64_t>(count) * sizeof(float);
}

// Tensors that the text model holds: BF16 matrices as they are or in int8, everything else as f32.
uint64_t trunk_bytes(const Checkpoint& checkpoint, TrunkForm trunk) {
  uint64_t bytes = 0;
  for (const TensorRef& tensor : checkpoint.tensors()) {
    const std::string_view name = tensor.info.name;
    if (is_routed_expert(name) || name.starts_with("vision_tower.") || name.starts_with("mm_projector.")) continue;
    const bool matrix = tensor.info.shape.size() == 2 && tensor.info.shape[0] > 1 && name.ends_with(".weight");
    const uint64_t elements = tensor.info.size() / static_cast<uint64_t>(element_size(tensor.info.dtype));
    if (!matrix) {
      bytes += 4 * elements;
    } else if (trunk == TrunkForm::kBf16 || name.ends_with(".gate.weight") || name.ends_with("embed_tokens.weight")) {
      bytes += tensor.info.size();
    } else {
      bytes += elements + 2 * (elements / static_cast<uint64_t>(kInt8Group));
    }
  }
  return bytes;
}

// All experts in tiles; those that no tile holds are decoded from the checkpoint and take nothing.
uint64_t tiles_of_all(const ExpertLayout& layout) {
  uint64_t bytes = 0;
  for (int64_t key = 0; key < layout.num_keys(); ++key) {
    for (const StoredLinear& linear : layout.place(key).linear) {
      if (const auto format = tile_format_of(linear)) {
        bytes += static_cast<uint64_t>(tiles_bytes(*format, linear.out_features, linear.in_features));
      }
    }
  }
  return bytes;
}

int64_t layers_of(const ModelConfig& config, AttentionKind kind) {
  return std::count(config.attention.begin(), config.attention.end(), kind);
}

uint64_t state_bytes(const ModelConfig& config, int64_t context) {
  const int64_t channels = config.kda_num_heads * config.kda_head_dim;
  const int64_t kda = channels * config.kda_head_dim + 3 * (config.short_conv_kernel_size - 1) * channels;
  const uint64_t mla = bytes_of_floats(context * (config.kv_lora_rank + config.qk_rope_head_dim));
  return bytes_of_floats(layers_of(config, AttentionKind::kKda) * kda) +
         static_cast<uint64_t>(kGrowth * static_cast<double>(mla)) *
             static_cast<uint64_t>(layers_of(config, AttentionKind::kMla));
}

// Activations of a block of `tokens` at the widest moment of a layer, and what every thread keeps.
uint64_t scratch_bytes(const ModelConfig& config, const EngineOptions& options, int threads) {
  const int64_t tokens = std::max(std::min(options.prefill_chunk, options.context), options.sequences);
  const int64_t blocks = (config.num_hidden_layers + config.attn_res_block_size - 1) / config.attn_res_block_size;
  const int64_t stream = (blocks + 1) * config.hidden_size;
  const int64_t channels = config.kda_num_heads * config.kda_head_dim;
  const int64_t heads = config.num_attention_heads;
  const int64_t kda = 2 * config.hidden_size + 9 * channels;
  const int64_t mla = 2 * config.hidden_size + config.q_lora_rank +
                      heads * (config.qk_nope_head_dim + config.qk_rope_head_dim + 2 * config.v_head_dim);
  const int64_t dense = 2 * config.hidden_size + 2 * config.intermediate_size;
  const int64_t moe = 3 * config.hidden_size + 2 * config.routed_expert_hidden_size +
                      2 * config.num_shared_experts * config.moe_intermediate_size;
  const int64_t widest = std::max({kda, mla, dense, moe});
  const int64_t expert_rows = tokens * config.num_experts_per_token;
  const int64_t batch = std::min<int64_t>(
      kExpertBatchBytes, expert_rows * 4 * (2 * config.routed_expert_hidden_size + 2 * config.moe_intermediate_size));
  const int64_t cache_width = config.kv_lora_rank + config.qk_rope_head_dim;
  const int64_t per_thread = kRowsOfScores * options.context + 2 * tokens * cache_width +
                             (config.qk_nope_head_dim + config.v_head_dim) * config.kv_lora_rank + 4 * 64 * 1024;
  return bytes_of_floats(tokens * (stream + widest) + config.vocab_size * options.sequences + threads * per_thread) +
         static_cast<uint64_t>(batch);
}

std::string in_words(uint64_t bytes) {
  const double size = static_cast<double>(bytes);
  return size < 1e9 ? fmt::format("{:.1f} MB", size / 1e6) : fmt::format("{:.2f} GB", size / 1e9);
}

[[noreturn]] void fail_over_budget(const MemoryPlan& plan, uint64_t least_experts, const char* experts) {
  fail(
      ErrorCode::kOverBudget,
      "the budget is {}; needed are {} for everything but the routed experts, {} for {}, {} for the sequences' states, "
      "{} for activations and {} for the program: {} in all",
      in_words(plan.budget_bytes), in_words(plan.trunk_bytes), in_words(least_experts), experts,
      in_words(plan.state_bytes), in_words(plan.scratch_bytes), in_words(plan.program_bytes),
      in_words(plan.total_bytes() + least_experts));
}

}  // namespace

MemoryPlan plan_memory(const ModelConfig& config, const Checkpoint& checkpoint, const EngineOptions& options,
                       uint64_t limit_bytes) {
  if (options.context < 1 || options.sequences < 1 || options.prefill_chunk < 1) {
    fail(ErrorCode::kInvalidArgument, "context {}, sequences {} and prefill chunk {} must be positive", options.context,
         options.sequences, options.prefill_chunk);
  }
  const bool decoded = decodes_weights(options);
  // exact is the default and gives way to f32; the others were asked for.
  if (options.numerics == Numerics::kF32 &&
      (options.kernels == KernelMode::kFast16 || options.kernels == KernelMode::kFast8)) {
    fail(ErrorCode::kInvalidArgument, "--kernels {} multiplies bf16 activations: it needs --numerics bf16",
         to_string(options.kernels));
  }
  if (decoded && options.trunk == TrunkForm::kInt8) {
    fail(ErrorCode::kInvalidArgument,
         "--trunk int8 changes nothing where weights are decoded as stored: it needs --numerics bf16 and kernels other "
         "than reference");
  }
  constexpr int64_t kMostSequences = 1 << 16;
  if (options.context > config.max_position_embeddings || options.sequences > kMostSequences) {
    fail(ErrorCode::kInvalidArgument, "context {} and {} sequences: at most {} (max_position_embeddings) and {}",
         options.context, options.sequences, config.max_position_embeddings, kMostSequences);
  }
  MemoryPlan plan;
  plan.budget_bytes = options.memory_bytes > 0 ? options.memory_bytes : limit_bytes;
  plan.trunk_bytes = decoded ? 0 : trunk_bytes(checkpoint, options.trunk);
  plan.state_bytes = state_bytes(config, options.context) * static_cast<uint64_t>(options.sequences);
  plan.scratch_bytes = scratch_bytes(config, options, options.threads > 0 ? options.threads : usable_cpus());
  plan.program_bytes = options.reserved_bytes + kProgram + kHeaderBytesPerTensor * checkpoint.tensors().size();
  // A copy of its own only to read headers: nothing of it is kept.
  const ExpertLayout layout({std::shared_ptr<const Checkpoint>(&checkpoint, [](const Checkpoint*) {})}, config);
  if (decoded && options.experts != ExpertPlacement::kDrive) {
    plan.experts_in_memory = true;
    plan.why =
        "reference kernels decode every weight from the mapped checkpoint: only what is touched becomes resident";
    return plan;
  }
  const uint64_t all = decoded ? 0 : tiles_of_all(layout);
  const uint64_t rest = plan.total_bytes();
  const bool fits = plan.budget_bytes >= rest + all;
  if (options.experts == ExpertPlacement::kMemory || (options.experts == ExpertPlacement::kAuto && fits)) {
    if (!fits) fail_over_budget(plan, all, "all routed experts");
    plan.experts_in_memory = true;
    plan.expert_bytes = all;
    plan.why =
        fmt::format("all routed experts fit: {} of {} are planned", in_words(rest + all), in_words(plan.budget_bytes));
    return plan;
  }
  const uint64_t slot = layout.summary().slot_bytes;
  if (slot == 0) return plan;  // no routed experts
  if (plan.budget_bytes < rest + 2 * slot) fail_over_budget(plan, 2 * slot, "two experts of a cache");
  plan.expert_slots = static_cast<int64_t>(
      std::min<uint64_t>((plan.budget_bytes - rest) / slot, static_cast<uint64_t>(layout.num_keys())));
  plan.expert_bytes = static_cast<uint64_t>(plan.expert_slots) * slot;
  plan.why = fmt::format("routed experts ({} in memory) are read from the drive; {} of {} find room in the cache",
                         in_words(all), plan.expert_slots, layout.num_keys());
  return plan;
}

}  // namespace trefoil
