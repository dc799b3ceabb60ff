// Probe C: both models on their own, compared layer by layer: residual streams and routing.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/error_spread.h"
#include "eval/forward_layers.h"
#include "eval/loaded_model.h"

namespace trefoil {

class StreamProbe {
 public:
  StreamProbe(const LoadedModel& reference, const LoadedModel& candidate, ThreadPool& pool);

  // Where both streams are after `layer`, and what they did in it. token_rows: the text row of each token.
  void add(int64_t layer, std::span<const int32_t> token_rows, const ResidualStream& reference,
           const ResidualStream& candidate, const LayerStep& reference_step, const LayerStep& candidate_step);

  std::vector<StreamLayerProbe> layers(int64_t num_rows) const;

 private:
  struct Layer {
    ErrorCollector residual;
    double cosine_sum = 0;
    int64_t cosines = 0;
    std::vector<int32_t> row;  // of each token
    std::vector<double> overlap, top1, router_kl;
  };

  void add_routing(Layer& layer, int64_t index, const LayerStep& reference, const LayerStep& candidate);

  const LoadedModel& reference_;
  const LoadedModel& candidate_;
  ThreadPool& pool_;
  std::vector<Layer> layers_;
};

}  // namespace trefoil
