#include "plan/quantize_needs.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace trefoil {
namespace {

constexpr uint64_t kF32 = 4;
constexpr uint64_t kMiB = 1ull << 20;

// Program, libraries and buffers that every run has; a thread's share of them.
constexpr uint64_t kProgramBytes = 56 * kMiB;
constexpr uint64_t kThreadBytes = 24 * kMiB;
// Names, shapes and places of a source tensor, in the checkpoint, the shard plans and the staged shards.
constexpr uint64_t kTensorBytes = 1200;
// Weights that a layer keeps decoded: norms, mixes, convolutions.
uint64_t small_weights(const ModelConfig& config);

// The most tokens of an expert that are in memory at a time (src/quantize/expert_job.cpp).
constexpr uint64_t kExpertTokens = 4096;
// What an expert holds, f32, measured at Kimi-K3's widths (docs/quantization.md, "Cost"): square matrices of its wider
// input width (Hessian, cross moment, factor, inverse), and matrices of latent x inner (weights as they were, as targets,
// as solved).
struct ExpertMatrices {
  double squares = 0;
  double weights = 0;

  uint64_t bytes(uint64_t latent, uint64_t inner) const {
    const uint64_t wide = std::max(latent, inner);
    return static_cast<uint64_t>(squares * static_cast<double>(wide * wide * kF32) +
                                 weights * static_cast<double>(latent * inner * kF32));
  }
};
// Its two worst moments: beside the tokens that run through it, and while it is solved.
struct ExpertMoments {
  ExpertMatrices forward, solve;
};
constexpr ExpertMoments kTrefoilExpert{{4, 8.5}, {4, 9.3}};
constexpr ExpertMoments kStockExpert{{3, 3.25}, {3, 4.1}};
constexpr int64_t kMostUnitTokens = 8192;
constexpr int64_t kMostPassTokens = int64_t{1} << 16;  // a unit that is worth losing when it is killed
// Experts are solved one after the other in a unit, units side by side: few enough that a layer's last units end at much
// the same time, and that little is lost when a process is killed: an expert takes a minute.
constexpr int64_t kMostExpertsPerUnit = 2;
constexpr int64_t kUnitsPerWorker = 4;
constexpr double kRefinePasses = 6;
constexpr uint64_t kMoeBatchBytes = 4 * 64 * kMiB / 3;  // Moe::expert_sum's gathered inputs, hidden values and outputs

uint64_t u(int64_t value) {
  return static_cast<uint64_t>(value);
}

// The running sum, and one sum for every started block of attn_res_block_size layers.
uint64_t residual_vectors(const ModelConfig& config) {
  return 1 + u(ceil_div(config.num_hidden_layers, config.attn_res_block_size));
}

int64_t moe_layers(const ModelConfig& config) {
  return config.num_hidden_layers - config.first_k_dense_replace;
}

uint64_t small_weights(const ModelConfig& config) {
  const uint64_t kda = u(config.kda_num_heads * config.kda_head_dim) * (3 * u(config.short_conv_kernel_size) + 1);
  return u(config.num_hidden_layers) * (6 * u(config.hidden_size) + kda + u(config.num_experts)) * kF32;
}

// Floats that a token needs at the worst moment inside KDA, MLA and what follows. model/kda_layer.cpp, mla_layer.cpp.
uint64_t attention_floats(const ModelConfig& config) {
  const uint64_t hidden = u(config.hidden_size);
  const uint64_t channels = u(config.kda_num_heads * config.kda_head_dim);
  const uint64_t kda = 9 * channels + u(config.kda_num_heads) + hidden;
  const uint64_t heads = u(config.num_attention_heads);
  const uint64_t values = heads * u(config.v_head_dim);
  const uint64_t mla = heads * u(config.qk_nope_head_dim + config.qk_rope_head_dim) + 2 * values + hidden +
                       2 * u(config.kv_lora_rank + config.qk_rope_head_dim);
  const uint64_t dense = 2 * u(config.intermediate_size) + hidden;
  const uint64_t shared = 2 * u(config.num_shared_experts * config.moe_intermediate_size) + 2 * hidden;
  return std::max({kda, mla, dense, shared});
}

uint64_t attention_unit_bytes(const ModelConfig& config, uint64_t rows, uint64_t tokens) {
  const uint64_t residual = (residual_vectors(config) + 1) * u(config.hidden_size);  // and the mix
  const uint64_t states = rows * u(config.kda_num_heads * config.kda_head_dim) * u(config.kda_head_dim);
  return (tokens * (residual + attention_floats(config)) + states) * kF32;
}

uint64_t pass_unit_bytes(const ModelConfig& config, uint64_t pass_tokens, uint64_t unit_rows, uint64_t unit_tokens) {
  const uint64_t latents = 2 * pass_tokens * u(config.routed_expert_hidden_size) * kF32;
  const uint64_t routing = pass_tokens * u(config.num_experts_per_token) * 16;
  return latents + routing + std::max(kMoeBatchBytes, attention_unit_bytes(config, unit_rows, unit_tokens));
}

uint64_t base_of(const ModelConfig& config, const QuantizeNeeds& needs) {
  return kProgramBytes + u(needs.threads) * kThreadBytes + needs.num_tensors * kTensorBytes + small_weights(config) +
         u(needs.tokens()) * kF32;
}

// What the experts of a layer share: the Hessian of all latents, the metric of w2's outputs with its factor.
uint64_t experts_shared_bytes(const ModelConfig& config, const QuantizeNeeds& needs) {
  const uint64_t latent = u(config.routed_expert_hidden_size);
  return needs.is_calibrated && needs.is_trefoil ? 3 * latent * latent * kF32 : 0;
}

}  // namespace

uint64_t QuantizeCut::peak_bytes() const {
  return base_bytes + std::max({attention_bytes, pass_bytes, experts_bytes});
}

uint64_t expert_bytes(const ModelConfig& config, const QuantizeNeeds& needs) {
  const uint64_t latent = u(config.routed_expert_hidden_size), inner = u(config.moe_intermediate_size);
  const uint64_t matrix = latent * inner * kF32;
  if (!needs.is_calibrated) return 6 * matrix;
  // Twice an even share: routing is not even, and a block of tokens is a small part of an expert.
  const uint64_t share = 2 * u(needs.tokens()) * u(config.num_experts_per_token) / u(config.num_experts);
  const uint64_t tokens = std::min({kExpertTokens, u(needs.tokens()), share});
  const ExpertMoments& held = needs.is_trefoil ? kTrefoilExpert : kStockExpert;
  return std::max(held.forward.bytes(latent, inner) + tokens * (2 * latent + 3 * inner) * kF32,
                  held.solve.bytes(latent, inner));
}

uint64_t cut_bytes(const ModelConfig& config, const QuantizeNeeds& needs, int64_t unit_rows, int64_t pass_rows) {
  const uint64_t length = u(needs.row_length);
  const uint64_t unit = u(std::min(unit_rows, needs.rows)), pass = u(std::min(pass_rows, needs.rows));
  uint64_t most = experts_shared_bytes(config, needs) + expert_bytes(config, needs);
  if (needs.is_calibrated) {
    most = std::max({most, attention_unit_bytes(config, unit, unit * length),
                     pass_unit_bytes(config, pass * length, unit, unit * length)});
  }
  return base_of(config, needs) + most;
}

uint64_t least_budget(const ModelConfig& config, const QuantizeNeeds& needs) {
  return cut_bytes(config, needs, 1, 1);
}

QuantizeCut cut_quantize(const ModelConfig& config, const QuantizeNeeds& needs) {
  QuantizeCut cut;
  cut.base_bytes = base_of(config, needs);
  const uint64_t shared = experts_shared_bytes(config, needs), expert = expert_bytes(config, needs);
  const uint64_t length = u(needs.row_length);
  const uint64_t budget = needs.budget_bytes == 0 ? ~0ull : needs.budget_bytes;
  if (const uint64_t least = least_budget(config, needs); budget < least) {
    fail(ErrorCode::kOverBudget,
         "a memory budget of {} is too small: {} is the least for this model and {} tokens a row (--max-seq-length) "
         "with {} threads",
         format_gib(budget), format_gib(least), needs.row_length, needs.threads);
  }
  const uint64_t room = budget - cut.base_bytes;
  cut.experts_at_once = std::min<int64_t>(needs.threads, static_cast<int64_t>((room - shared) / expert));
  cut.experts_per_unit = std::clamp<int64_t>(
      config.num_experts / (kUnitsPerWorker * cut.experts_at_once * needs.processes), 1, kMostExpertsPerUnit);
  cut.experts_bytes = shared + u(cut.experts_at_once) * expert;
  if (!needs.is_calibrated) return cut;
  // A unit of attention takes no more than the experts do anyway, unless a single row does.
  const int64_t share = (needs.rows + needs.processes - 1) / needs.processes;
  while (cut.unit_rows < share && (cut.unit_rows + 1) * needs.row_length <= kMostUnitTokens &&
         attention_unit_bytes(config, u(cut.unit_rows + 1), u(cut.unit_rows + 1) * length) <= room) {
    ++cut.unit_rows;
  }
  cut.pass_rows = cut.unit_rows;
  const auto pass = [&](int64_t rows) {
    return pass_unit_bytes(config, u(rows) * length, u(cut.unit_rows), u(cut.unit_rows) * length);
  };
  while (cut.unit_rows > 1 && pass(cut.unit_rows) > room) cut.pass_rows = --cut.unit_rows;
  while (cut.pass_rows < share && (cut.pass_rows + cut.unit_rows) * needs.row_length <= kMostPassTokens &&
         pass(cut.pass_rows + cut.unit_rows) <= room) {
    cut.pass_rows += cut.unit_rows;
  }
  const int64_t unit_rows = std::min(cut.unit_rows, needs.rows), pass_rows = std::min(cut.pass_rows, needs.rows);
  cut.attention_bytes = attention_unit_bytes(config, u(unit_rows), u(unit_rows) * length);
  cut.pass_bytes = pass(pass_rows);
  return cut;
}

std::vector<PlanLine> quantize_memory(const ModelConfig& config, const QuantizeNeeds& needs) {
  const QuantizeCut cut = cut_quantize(config, needs);
  const uint64_t worst = std::max({cut.attention_bytes, cut.pass_bytes, cut.experts_bytes});
  std::vector<PlanLine> lines = {
      {"program, headers, token ids", cut.base_bytes,
       fmt::format("{} tensors, {} threads", format_count(needs.num_tensors), needs.threads)}};
  if (worst == cut.experts_bytes) {
    lines.push_back({"experts in work", worst,
                     fmt::format("{} at once, {} each", cut.experts_at_once, format_gb(expert_bytes(config, needs)))});
  } else if (worst == cut.pass_bytes) {
    lines.push_back(
        {"activations through the experts", worst,
         fmt::format("{} rows of {} tokens at once", std::min(cut.pass_rows, needs.rows), needs.row_length)});
  } else {
    lines.push_back(
        {"attention", worst,
         fmt::format("{} rows of {} tokens at once", std::min(cut.unit_rows, needs.rows), needs.row_length)});
  }
  return lines;
}

uint64_t scratch_bytes(const ModelConfig& config, const QuantizeNeeds& needs) {
  if (!needs.is_calibrated) return 0;
  const uint64_t tokens = u(needs.tokens()), width = u(config.routed_expert_hidden_size);
  const uint64_t element = needs.stores_bf16 ? 2 : 4;
  const uint64_t sum = tokens * u(config.hidden_size) * element;
  const uint64_t experts_see = tokens * (width * element + u(config.num_experts_per_token) * 8);  // latents and routing
  const int64_t end = needs.end_layer < 0 ? config.num_hidden_layers : needs.end_layer;
  const int64_t split = config.first_k_dense_replace;  // up to its input both streams are one
  uint64_t most = 0;
  for (int64_t layer = 0; layer < end; ++layer) {
    // Of the trefoil recipe: the effects of the experts, and the Hessian of all latents.
    uint64_t bytes = config.is_moe(layer) && needs.is_trefoil ? tokens * 8 + width * width * kF32 : 0;
    for (const bool original : {false, true}) {
      if (original && !needs.has_original_stream) continue;
      const int64_t first = original ? split + 1 : 0;  // layer whose input is this stream's own
      for (int64_t stacked = 0; stacked <= layer; stacked += config.attn_res_block_size) {
        if (stacked >= first) bytes += sum;
      }
      if (layer >= first && layer % config.attn_res_block_size != 0) bytes += sum;  // its input
      if (layer >= first && config.is_moe(layer)) bytes += sum + experts_see;       // after attention
      if (layer + 1 >= first && layer + 1 < end) bytes += sum;                      // the next layer's input
    }
    most = std::max(most, bytes);
  }
  return most;
}

uint64_t scratch_traffic_bytes(const ModelConfig& config, const QuantizeNeeds& needs) {
  if (!needs.is_calibrated) return 0;
  const uint64_t element = needs.stores_bf16 ? 2 : 4;
  const uint64_t hidden = u(config.hidden_size), latent = u(config.routed_expert_hidden_size);
  const uint64_t experts = u(config.num_experts_per_token);
  uint64_t quantized = 0, original = 0;  // numbers of a token
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const uint64_t stacked = u(ceil_div(layer, config.attn_res_block_size));
    // Attention and the end of the layer each read the sums and write one; latents are written, passed through, and gathered by
    // every expert of the token, twice: for w1 and w3, and for w2.
    const uint64_t sums = 2 * (stacked + 1) * hidden + 2 * hidden;
    quantized += sums + latent * (3 + 2 * experts);
    original += sums + latent * (2 + 2 * experts);
  }
  return u(needs.tokens()) * (quantized + (needs.has_original_stream ? original : 0)) * element;
}

std::vector<ComputeEstimate> quantize_compute(const ModelConfig& config, const QuantizeNeeds& needs,
                                              uint64_t dense_active_parameters) {
  const auto d = [](int64_t value) { return static_cast<double>(value); };
  const double latent = d(config.routed_expert_hidden_size), inner = d(config.moe_intermediate_size);
  const double layers = d(moe_layers(config)), tokens = d(needs.tokens());
  const double assignments = tokens * d(config.num_experts_per_token) * layers;
  const double experts = d(config.num_experts) * layers;
  const double expert_parameters = 3 * latent * inner;
  const double pass = 2 * assignments * expert_parameters,
               trunk = 2 * tokens * static_cast<double>(dense_active_parameters);
  const double squares = latent * latent + inner * inner;
  const double sweeps = experts * (2 * inner * latent * latent + latent * inner * inner);
  std::vector<ComputeEstimate> lines = {
      {"forward, not quantized part", trunk, "2 x tokens x parameters every token uses"},
      {"forward, experts", pass, "2 x tokens x top-k x layers x parameters of an expert"},
      {"Hessians", 2 * assignments * squares,
       "2 x tokens x top-k x layers x (latent squared, shared by w1 and w3, + inner squared)"},
      {"factorizations", experts * 4 / 3 * (latent * latent * latent + inner * inner * inner),
       "4/3 n cubed: factor, invert, factor again"},
      {"column loops", sweeps, "rows x columns squared, w1 w3 w2"},
      {"experts again", pass * 5 / 3, "w1 and w3 behind the solve, all of the quantized expert"},
      {"refinement", sweeps * kRefinePasses, "six products with the Hessian: three rounds and what they are judged by"},
      {"two-sided w2", experts * 2 * latent * inner * (2 * latent + inner),
       "errors times the metric of the outputs, twice; times H"},
  };
  if (needs.has_original_stream) {
    lines.push_back(
        {"original stream", trunk + pass * 5 / 3, "trunk and experts; w1 and w3 again for what w2 should see"});
    lines.push_back({"mismatch targets",
                     2 * assignments * squares + experts * 2 *
                                                     (latent * latent * latent + inner * inner * inner +
                                                      2 * inner * latent * latent + latent * inner * inner),
                     "cross moments, their solution, the targets"});
  }
  return lines;
}

}  // namespace trefoil
