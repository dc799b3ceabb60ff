// The arithmetic of routed experts on a block of tokens: who is used by which tokens, what each expert gives, and the sum.
// Which experts these are and where their weights lie is the caller's business (model/moe.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/packed_tokens.h"
#include "model/linear.h"
#include "model/model.h"

namespace trefoil {

struct ExpertDims {
  Situ situ;
  int64_t latent = 0;
  int64_t inner = 0;
};

// Tokens of every expert, experts ascending: assignment[first[e] .. first[e + 1]) index [tokens, top_k] of the routing.
struct Assignments {
  std::vector<int64_t> first;       // [num_experts + 1]
  std::vector<int64_t> assignment;  // [tokens * top_k]

  Assignments(const Routing& routing, int64_t num_experts);
};

// The use of one expert: `count` rows of a batch from `begin`.
struct ExpertGroup {
  int64_t expert = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// A run of experts, ascending, whose outputs are kept until they are added.
struct ExpertBatch {
  std::vector<ExpertGroup> groups;
  std::span<const int64_t> assignment;  // one per row, into [tokens, top_k] of the routing

  int64_t rows() const { return static_cast<int64_t>(assignment.size()); }
};

// Cuts all assignments into batches whose inputs, hidden values and outputs stay within about 64 MiB; an expert of very
// many tokens is taken in pieces.
std::vector<ExpertBatch> batches_of(const Assignments& all, const ExpertDims& dims);

// The latents of a block of tokens, in the form that experts in tiles take too.
class ExpertInput {
 public:
  // z: [tokens, latent], kept by the caller. `mode`: packed for it at once; nothing: experts are decoded.
  ExpertInput(const Runtime& runtime, std::optional<TileMode> mode, std::span<const float> z, int64_t latent);

  std::span<const float> row(int64_t token) const { return row_of(z_, token, latent_); }
  int64_t tokens() const { return static_cast<int64_t>(z_.size()) / latent_; }
  const PackedTokens* packed() const { return mode_ ? &packed_ : nullptr; }

 private:
  std::optional<TileMode> mode_;
  std::span<const float> z_;
  int64_t latent_;
  PackedTokens packed_;
};

// out[i] = w2 situ(w1 z, w3 z) for the rows of group.begin + i, i in [0, group.count), of each group, out [rows of the
// batch, latent]; experts[g] belongs to batch.groups[g]. Experts whose weights kernels read in tiles are multiplied that
// way when the input is packed, the others decoded; a row's result depends on its token and expert alone.
void expert_outputs(const Runtime& runtime, const ExpertDims& dims, std::span<const ExpertLinears* const> experts,
                    const ExpertBatch& batch, const ExpertInput& input, int64_t top_k, std::span<float> out);

// sum[token] += weight * out[row] for all rows of the batch, experts ascending for every token.
void add_expert_outputs(const Runtime& runtime, const ExpertBatch& batch, const Routing& routing,
                        std::span<const float> out, int64_t latent, std::span<float> sum);

}  // namespace trefoil
