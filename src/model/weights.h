// The one interface through which the forward pass takes weights. It says what a weight is, not how it is stored (BF16,
// F32, MXFP4, int3 ...) nor where (mapped, resident, made up by a test).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/code_tiles.h"
#include "kernels/row_matmul_impl.h"
#include "tensor/tensor_view.h"

namespace trefoil {

// A weight in memory in a form that a kernel multiplies as it is; valid while its LinearWeight lives.
struct DirectForm {
  enum class Kind {
    kNone,   // it must be decoded
    kRows,   // kernels/row_matmul.h: the bits of decoding and multiplying
    kTiles,  // kernels/tile_matmul.h: a kernel mode of its own
    kCodes,  // rows as on disk, packed into tiles as they are multiplied: the results of kTiles
  };
  Kind kind = Kind::kNone;
  RowMatrix rows;
  TileFormat tile_format = TileFormat::kInt3;
  const std::byte* tiles = nullptr;  // 64-byte aligned
  CodeRows codes;

  bool has_codes() const { return kind == Kind::kTiles || kind == Kind::kCodes; }
};

// The weight of one Linear, [out_features, in_features]. Immutable and safe to use from several threads.
class LinearWeight {
 public:
  LinearWeight(int64_t out_features, int64_t in_features) : out_features_(out_features), in_features_(in_features) {}
  virtual ~LinearWeight() = default;

  int64_t out_features() const { return out_features_; }
  int64_t in_features() const { return in_features_; }

  // Rows [row_begin, row_end) as f32, row-major, out.size() == (row_end - row_begin) * in_features().
  // Throws Error(kCorrupt) for stored values that do not decode, Error(kIo) when reading fails.
  virtual void decode_rows(int64_t row_begin, int64_t row_end, std::span<float> out) const = 0;

  virtual DirectForm direct() const { return {}; }

 private:
  int64_t out_features_;
  int64_t in_features_;
};

constexpr int64_t kAnySize = -1;

// Names are the release's, without the "language_model." prefix and, for Linears, without ".weight":
// "model.layers.3.block_sparse_moe.experts.17.w1".
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Demands the shape (kAnySize accepts any); Error(kNotFound / kCorrupt) says the name, expected and found.
  virtual std::unique_ptr<LinearWeight> linear(std::string_view module, int64_t out_features,
                                               int64_t in_features) const = 0;
  // A small tensor, any of BF16, F16, F32, as f32. `name` is the full name ("model.norm.weight", "...self_attn.A_log").
  virtual std::vector<float> vector(std::string_view name, const Shape& shape) const = 0;
};

}  // namespace trefoil
