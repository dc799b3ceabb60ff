// Kimi-K3's text forward pass, written once and used by calibration, evaluation and generation. docs/architecture.md.
//
// Activations are f32 in memory whatever the numerics. In Numerics::kF32 nothing is rounded between operations; in
// kBf16 every value is rounded to bf16 where the release rounds (docs/architecture.md, "Rounding points"). Matrix
// products are batch invariant: an output element depends on its own input row and weight row alone, so results do not
// depend on chunking, batch mates or the number of threads (the chunked KDA form regroups sums within one sequence).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "checkpoint/model_config.h"
#include "model/weights.h"
#include "trefoil/numerics.h"

namespace trefoil {

enum class KdaForm { kRecurrent, kChunked };
enum class MlaForm { kAbsorbed, kExpanded };

struct ForwardOptions {
  Numerics numerics = Numerics::kBf16;
  KdaForm kda = KdaForm::kRecurrent;  // kChunked applies to runs of more than one token
  MlaForm mla = MlaForm::kExpanded;
  KernelMode kernels = KernelMode::kReference;  // of weights in tiles (model/resident_weights.h), under kBf16 numerics
  bool lookahead = true;  // with an ExpertStore: guess the next layer's experts before its attention runs
};

// What one sequence carries from token to token. docs/architecture.md, "State".
struct LayerState {
  // KDA: the last short_conv_kernel_size - 1 raw projections, oldest first, [kernel - 1, heads * head_dim] each;
  // the recurrent state S, [head][V][K].
  std::vector<float> conv_q, conv_k, conv_v, recurrent;
  // MLA: per token [kv_lora_rank | qk_rope_head_dim], the normed latent and the raw rope part.
  std::vector<float> kv;
};

struct SequenceState {
  int64_t position = 0;  // tokens seen; counted by Model::forward alone
  std::vector<LayerState> layers;
};

// Rows [begin, begin + count) of a token block, in order, all of one sequence.
struct SequenceRows {
  SequenceState* state = nullptr;
  int64_t begin = 0;
  int64_t count = 0;
};

// The AttnRes residual stream of a block of tokens: the running sum and the stacked block sums.
struct ResidualStream {
  int64_t tokens = 0;
  int64_t hidden = 0;
  std::vector<float> prefix;              // [tokens, hidden]
  std::vector<std::vector<float>> stack;  // each [tokens, hidden]
};

// Which experts each token uses. Rows of top_k, expert ids ascending within a row.
struct Routing {
  int64_t tokens = 0;
  int64_t top_k = 0;
  std::vector<int32_t> expert;  // [tokens, top_k]
  std::vector<float> weight;    // [tokens, top_k], f32
};

// The three Linears of a routed expert: gate, down, up.
struct ExpertLinears {
  std::unique_ptr<LinearWeight> w1, w2, w3;
};

// What a caller may want to look at in one layer; every vector is filled when the tap is passed. [tokens, ...].
struct LayerTap {
  std::vector<float> attn_in, attn_out, mlp_in, mlp_out, prefix;
  std::vector<float> latent, expert_sum;  // MoE layers
  Routing routing;                        // MoE layers
};

// Tokens of one sequence in a step of several.
struct SequenceTokens {
  SequenceState* state = nullptr;
  std::span<const int32_t> ids;  // not empty
};

class ExpertStore;
struct Profile;

class Model {
 public:
  // Checks the config against the shapes of the weights. Keeps references to `pool`, which must outlive the model.
  // With `experts` the routed experts are read through it; `weights` is then not asked for them.
  Model(const ModelConfig& config, std::shared_ptr<const WeightSource> weights, const ForwardOptions& options,
        ThreadPool& pool, std::shared_ptr<ExpertStore> experts = nullptr);
  ~Model();

  const ModelConfig& config() const;
  const ForwardOptions& options() const;
  SequenceState new_sequence() const;

  // From here on the parts of every forward pass are timed into `profile`, which may be null; not while one runs.
  void set_profile(Profile* profile);

  // --- the whole model ---
  // Runs `ids` (0 <= id < vocab_size, else Error) after what `state` has seen; returns logits [ids.size(), vocab_size],
  // or only the last row when `last_only`. `taps`, when given, gets one entry per layer. A NaN or Inf in the logits is
  // an Error(kCorrupt), never a token.
  std::vector<float> forward(std::span<const int32_t> ids, SequenceState& state, bool last_only = false,
                             std::vector<LayerTap>* taps = nullptr) const;

  // The same for several sequences at once, each a row range of one block: they share every read of a weight. Returns the
  // logits after the last token of each, [sequences.size(), vocab_size]; bits are those of each sequence alone.
  std::vector<float> forward(std::span<const SequenceTokens> sequences) const;

  // --- the pieces, for work that goes layer by layer over many sequences ---
  ResidualStream embed(std::span<const int32_t> ids) const;
  // First half of a layer: AttnRes mix, push, attention over each sequence's rows, residual.
  void attention(int64_t layer, ResidualStream& stream, std::span<const SequenceRows> sequences,
                 LayerTap* tap = nullptr) const;
  // The FFN's input: AttnRes mix and post_attention_layernorm, [tokens, hidden].
  std::vector<float> ffn_input(int64_t layer, const ResidualStream& stream) const;
  // prefix += out (rounded as numerics demand). `out` is dense_ffn's or moe_finish's.
  void add_ffn(int64_t layer, ResidualStream& stream, std::span<const float> out) const;
  std::vector<float> dense_ffn(int64_t layer, std::span<const float> h, int64_t tokens) const;

  Routing route(int64_t layer, std::span<const float> h, int64_t tokens) const;
  // routed_expert_down_proj(h): what every expert of the layer reads, [tokens, routed_expert_hidden_size].
  std::vector<float> latent(int64_t layer, std::span<const float> h, int64_t tokens) const;
  // Sum over each token's experts of weight * w2(situ(w1 z, w3 z)), in ascending expert order.
  std::vector<float> expert_sum(int64_t layer, std::span<const float> z, const Routing& routing) const;
  // The same with other experts in the place of the layer's own.
  std::vector<float> expert_sum(int64_t layer, std::span<const float> z, const Routing& routing,
                                std::span<const ExpertLinears> experts) const;
  // up(norm(expert_sum)) + shared_experts(h).
  std::vector<float> moe_finish(int64_t layer, std::span<const float> h, std::span<const float> expert_sum,
                                int64_t tokens) const;
  // Final mix, norm and lm_head of rows [begin, begin + count) of the stream: [count, vocab_size].
  std::vector<float> logits(const ResidualStream& stream, int64_t begin, int64_t count) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The first half of one expert on gathered latents, for callers that hold its weights as plain f32 matrices [inner,
// latent]. z [tokens, latent]; hidden = situ(w1 z, w3 z) [tokens, inner]. The same arithmetic and rounding as
// Model::expert_sum.
struct GateUpWeights {
  std::span<const float> w1, w3;
  int64_t latent = 0;
  int64_t inner = 0;
};
void expert_hidden(const GateUpWeights& weights, const ModelConfig& config, Numerics numerics, std::span<const float> z,
                   int64_t tokens, std::span<float> hidden);

}  // namespace trefoil
