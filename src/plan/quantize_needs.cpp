#include "plan/quantize_needs.h"

#include "base/bytes.h"
#include "base/error.h"

namespace trefoil {
namespace {

constexpr uint64_t kF32 = 4;
// Square matrices of an expert's input width alive at once: Hessian, cross moment, factor, inverse.
constexpr uint64_t kSquares = 4;
// Copies of an expert's weights alive at once, f32: the original, its target, the solved one.
constexpr uint64_t kWeightCopies = 3;

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

}  // namespace

std::vector<PlanLine> quantize_memory(const ModelConfig& config, const QuantizeNeeds& needs,
                                      uint64_t layer_output_bytes) {
  const uint64_t tokens = u(needs.tokens), threads = u(needs.threads);
  const uint64_t latent = u(config.routed_expert_hidden_size), inner = u(config.moe_intermediate_size);
  const uint64_t vectors = residual_vectors(config);
  const uint64_t assignments = tokens * u(config.num_experts_per_token);
  std::vector<PlanLine> lines;
  lines.push_back(
      {"activations", 2 * tokens * vectors * u(config.hidden_size) * kF32,
       fmt::format("{} tokens x {} residual vectors (running sum and AttnRes blocks) x {} x f32, two streams",
                   format_count(tokens), vectors, config.hidden_size)});
  lines.push_back(
      {"expert inputs and sums", 4 * tokens * latent * kF32 + 2 * assignments * 16,
       fmt::format("{} tokens x {} x f32, in and out, two streams; token lists", format_count(tokens), latent)});
  lines.push_back({"shared Hessian", latent * latent * kF32, fmt::format("{0} x {0} x f32", latent)});
  lines.push_back(
      {"experts in work",
       threads * (kSquares * std::max(latent, inner) * std::max(latent, inner) + kWeightCopies * 3 * latent * inner) *
           kF32,
       fmt::format("{} threads x ({} matrices of {} squared and {} copies of 3 x {} x {}) x f32", threads, kSquares,
                   std::max(latent, inner), kWeightCopies, latent, inner)});
  lines.push_back({"encoded experts of one layer", layer_output_bytes, "kept until the layer's shard is written"});
  return lines;
}

std::vector<ComputeEstimate> quantize_compute(const ModelConfig& config, const QuantizeNeeds& needs,
                                              uint64_t dense_active_parameters) {
  const auto d = [](int64_t value) { return static_cast<double>(value); };
  const double latent = d(config.routed_expert_hidden_size), inner = d(config.moe_intermediate_size);
  const double layers = d(moe_layers(config)), tokens = d(needs.tokens);
  const double assignments = tokens * d(config.num_experts_per_token) * layers;
  const double experts = d(config.num_experts) * layers;
  const double expert_parameters = 3 * latent * inner;
  return {
      {"forward, not quantized part", 2 * tokens * static_cast<double>(dense_active_parameters),
       "2 x tokens x parameters every token uses; twice when the original stream runs beside"},
      {"forward, experts", 2 * assignments * expert_parameters,
       "2 x tokens x top-k x layers x parameters of an expert"},
      {"Hessians", 2 * assignments * (latent * latent + inner * inner),
       "2 x tokens x top-k x layers x (latent squared, shared by w1 and w3, + inner squared)"},
      {"factorizations", experts * 4 / 3 * (latent * latent * latent + inner * inner * inner),
       "4/3 n cubed: factor, invert, factor again"},
      {"column loops", experts * (2 * inner * latent * latent + latent * inner * inner),
       "rows x columns squared, w1 w3 w2"},
  };
}

}  // namespace trefoil
