// Weights in memory in the forms that kernels read: routed experts in tiles, the trunk as bf16 or int8 rows. What no
// kernel reads (other dtypes and group sizes) stays in the checkpoint and is decoded from there.
#pragma once

#include <memory>
#include <string>

#include "base/parallel.h"
#include "model/checkpoint_weights.h"
#include "model/weights.h"
#include "trefoil/numerics.h"

namespace trefoil {

// What became of the weights.
struct ResidentReport {
  uint64_t tile_bytes = 0;         // routed experts in tiles
  uint64_t row_bytes = 0;          // trunk in memory
  uint64_t stored_bytes = 0;       // left in the checkpoint, decoded when used
  double int8_relative_error = 0;  // rms of what int8 changed, relative to the rms of the weights it replaced
};

class ResidentWeights : public WeightSource {
 public:
  // Which experts to hold: those of a store that streams them are taken from there (model/expert_bank.h).
  struct Options {
    TrunkForm trunk = TrunkForm::kBf16;
    bool experts = true;  // in tiles; false: left in the checkpoint
  };
  ResidentWeights(std::shared_ptr<const Checkpoint> checkpoint, const Options& options, ThreadPool& pool);
  ~ResidentWeights() override;

  // Reads, checks for non-finite values (Error(kCorrupt) with tensor and row) and packs; in parallel.
  std::unique_ptr<LinearWeight> linear(std::string_view module, int64_t out_features,
                                       int64_t in_features) const override;
  std::vector<float> vector(std::string_view name, const Shape& shape) const override;

  ResidentReport report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trefoil
