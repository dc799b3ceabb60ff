// Applies one Linear to a block of tokens: y[t] = r(W x[t]), no bias. Inputs are used as they are (the caller has
// rounded them), products accumulate in f32 (kernels/matmul.h) and the result is rounded once.
//
// The output rows are split over the pool. A weight in a direct form is multiplied as it is; otherwise each task decodes
// its rows into scratch of its own, so no matrix is ever held decoded as a whole. Results do not depend on the split.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "kernels/packed_tokens_impl.h"
#include "kernels/rounding.h"
#include "model/model.h"
#include "model/profile.h"
#include "model/weights.h"

namespace trefoil {

// What every part of the forward pass is handed: how to round and where to run.
struct Runtime {
  Rounding rounding = Rounding::kNone;
  ThreadPool* pool = nullptr;
  KernelMode kernels = KernelMode::kReference;
  Profile* profile = nullptr;  // may be null

  // The mode of products with tiles; nothing when they are decoded: by wish, or because activations are not bf16.
  std::optional<TileMode> tile_mode() const;
};

inline Rounding rounding_of(Numerics numerics) {
  return numerics == Numerics::kBf16 ? Rounding::kBf16 : Rounding::kNone;
}

// x: [tokens, in_features]; y: [tokens, out_features].
void apply_linear(const Runtime& runtime, const LinearWeight& weight, std::span<const float> x, int64_t tokens,
                  std::span<float> y);
std::vector<float> apply_linear(const Runtime& runtime, const LinearWeight& weight, std::span<const float> x,
                                int64_t tokens);

// Bytes a product with the weight reads; of one that must be decoded, as if it were bf16.
uint64_t bytes_of(const LinearWeight& weight);

// How many rows of a matrix with `in_features` columns one task should decode at a time (a multiple of 4).
int64_t rows_per_task(int64_t out_features, int64_t in_features, int num_threads);

// A buffer of this thread, grown to `size`; `slot` tells buffers in use at the same time apart. Contents are
// unspecified.
std::span<float> thread_scratch(int slot, int64_t size);

// n * width floats of an activation block, as a size for std::vector.
inline size_t block_size(int64_t tokens, int64_t width) {
  return static_cast<size_t>(tokens * width);
}
inline std::span<const float> row_of(std::span<const float> block, int64_t row, int64_t width) {
  return block.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
}
inline std::span<float> row_of(std::span<float> block, int64_t row, int64_t width) {
  return block.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
}

}  // namespace trefoil
