// Writes a shard: its tensors cut into pieces of a few MB, some of them made at a time by all threads while the ones
// before are written.
#pragma once

#include <atomic>
#include <functional>

#include "base/parallel.h"
#include "synthetic/shard_layout.h"
#include "synthetic/tensor_values.h"

namespace trefoil {

class ShardGenerator {
 public:
  // `written` is told the bytes of every batch of pieces, and may throw to stop. All are kept by reference.
  ShardGenerator(const TensorValues& values, ThreadPool& pool, const std::function<void(uint64_t)>& written)
      : values_(values), pool_(pool), written_(written) {}

  // Holds at most two batches of 4 pieces a thread in memory.
  void write(const SyntheticShard& shard, const fs::path& folder) const;

 private:
  const TensorValues& values_;
  ThreadPool& pool_;
  const std::function<void(uint64_t)>& written_;
};

}  // namespace trefoil
