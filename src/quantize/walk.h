// The walk over the decoder layers that quantizes them one after the other, each behind what the ones before became.
// docs/quantization.md, "The walk".
//
//   per layer:  attention -> norm -> route, latent -> experts (quantized here) -> up projection, residual -> next layer
//
// The calibration stream is the quantized one: a layer sees what the layers before it make of the text after
// quantization. For the mismatch target a second, original stream runs beside it from the first quantized layer on.
// Everything a step leaves is in files, and a step is cut into units that a Crew does; what a unit computes depends
// neither on who does it, nor on the threads, nor on how steps are cut.
#pragma once

#include <memory>
#include <vector>

#include "quantize/activation_store.h"
#include "quantize/crew.h"
#include "quantize/expert_job.h"
#include "quantize/staged_shards.h"
#include "quantize/walk_steps.h"

namespace trefoil {

struct WalkInputs {
  std::shared_ptr<const Checkpoint> source;
  const ModelConfig& config;
  const QuantizeOptions& options;
  const std::vector<MoeLayer>& layers;  // to quantize, ascending
  const CalibrationSet& calibration;
  WorkGrain grain;
  int64_t experts_at_once = 1;                   // side by side, at most one a thread; by plan/quantize_needs.h
  const ActivationStore* activations = nullptr;  // null under kRtn
  StagedShards& shards;
  Ledger& ledger;
  Crew& crew;
  ThreadPool& pool;
  ProgressSink& progress;
};

// Quantizes inputs.layers into inputs.shards. kRtn only reads the experts; the other recipes run the model over the
// calibration rows, up to the last of the layers. Errors name the layer, and the row and token or the expert.
// Returns the most disk space that the activations took.
uint64_t walk(const WalkInputs& inputs);

}  // namespace trefoil
