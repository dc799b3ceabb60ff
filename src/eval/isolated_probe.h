// Probe B: one MoE layer at a time, the candidate's experts on the reference's inputs and routing.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/error_spread.h"
#include "eval/forward_layers.h"
#include "eval/loaded_model.h"

namespace trefoil {

class IsolatedProbe {
 public:
  // The models must outlive this; `pool` runs the products.
  IsolatedProbe(const LoadedModel& reference, const LoadedModel& candidate, const Model& candidate_model,
                ThreadPool& pool);

  // One batch through `layer`: `step` is what the reference did there.
  void add(int64_t layer, const LayerStep& step);

  std::vector<IsolatedLayerProbe> layers() const;
  std::vector<LoadDecileProbe> load_deciles() const;

 private:
  struct Layer {
    int64_t layer = 0;
    ErrorCollector w1, w3, hidden, expert_sum, normed_sum;
    std::vector<ErrorCollector> expert_out;  // per expert
    std::vector<int64_t> load;               // tokens per expert
  };

  void add_expert(Layer& layer, int64_t expert, std::span<const float> z, int64_t tokens);
  void add_sums(Layer& layer, const LayerStep& step);
  std::vector<float> apply(const LoadedModel& model, int64_t layer, int64_t expert, const char* kind,
                           std::span<const float> x, int64_t tokens) const;

  const LoadedModel& reference_;
  const LoadedModel& candidate_;
  const Model& candidate_model_;
  ThreadPool& pool_;
  std::vector<Layer> layers_;  // MoE layers, ascending
};

}  // namespace trefoil
