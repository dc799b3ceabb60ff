// Turns solved experts into shards on disk. Holds the encoded experts of the shards that are still incomplete and
// writes a shard once the last of its layers is done, so memory is one shard's experts when a shard holds one layer.
//
// Single-threaded use, except encode(), which is pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "quantize/quantized_matrix.h"
#include "quantize/shard_plan.h"

namespace trefoil {

// The three tensors of one Linear as bytes: I32 codes, BF16 scales, I64 (out, in).
struct EncodedLinear {
  std::vector<std::byte> packed, scale, shape;
};
EncodedLinear encode(const QuantizedMatrix& matrix, PackedLayout layout);

class ShardWriter {
 public:
  // Writes into `folder`, which exists. `source` must outlive the writer.
  ShardWriter(const Checkpoint& source, std::vector<ShardPlan> plans, PackedLayout layout, fs::path folder);

  const std::vector<ShardPlan>& plans() const { return plans_; }

  // The result for a Linear; `module` as in the source.
  void add(const std::string& module, EncodedLinear encoded);
  // All experts of `layer` were added: writes every shard that waited for it alone. Error(kIo) when the disk refuses.
  void layer_done(int64_t layer);
  // Writes the shards that no layer contributes to.
  void write_untouched();

 private:
  void write(const ShardPlan& plan);

  const Checkpoint& source_;
  std::vector<ShardPlan> plans_;
  PackedLayout layout_;
  fs::path folder_;
  std::unordered_map<std::string, std::vector<std::byte>> made_;  // tensor name -> bytes not written yet
  std::vector<size_t> layers_missing_;                            // by plan
};

}  // namespace trefoil
