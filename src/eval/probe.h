// Probes: where between the weights and the logits a candidate departs from the reference. docs/evaluation.md,
// "Probes".
//
//   A  weights          no data: expert matrices against the reference's
//   B  isolated layer   the candidate's experts on the reference's inputs and routing: errors do not accumulate
//   C  end to end       both models on their own: residual streams and routing, layer by layer
//
// Results do not depend on the number of threads. Memory: one batch of rows through one layer, and a float per token
// (or token and expert) and figure; weights are decoded a few rows at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/eval_text.h"
#include "eval/loaded_model.h"
#include "trefoil/progress.h"

namespace trefoil {

struct ProbeSettings {
  int64_t batch_rows = 8;
  int64_t experts_per_layer = 0;  // probe A: evenly spread; 0: all
  Numerics numerics = Numerics::kF32;
};

// Numbers of the MoE layers, ascending.
std::vector<int64_t> moe_layers(const ModelConfig& config);

// A summary that has every name a real one will have and no numbers.
ProbeSummary blank_probe(const LoadedModel& reference, const LoadedModel& candidate);

// Probe A: w1, w3 and w2, in this order.
std::vector<WeightKindProbe> probe_weights(const LoadedModel& reference, const LoadedModel& candidate,
                                           const ProbeSettings& settings, ThreadPool& pool, ProgressSink& progress);

// Probes B and C for every candidate; fills isolated, load_deciles and stream of the summary at its place.
void probe_activations(const EvalText& text, const LoadedModel& reference, std::span<const LoadedModel> candidates,
                       const ProbeSettings& settings, ThreadPool& pool, ProgressSink& progress,
                       std::span<ProbeSummary> summaries);

}  // namespace trefoil
