// The walk over the decoder layers that quantizes them one after the other, each behind what the ones before became.
// docs/quantization.md, "The walk".
//
//   per layer:  attention -> norm -> route, latent -> experts (quantized here) -> up projection, residual -> next layer
//
// The calibration stream is the quantized one: a layer sees what the layers before it make of the text after
// quantization. For the mismatch target a second, original stream runs beside it from the first quantized layer on.
#pragma once

#include <memory>
#include <vector>

#include "quantize/layer_job.h"

namespace trefoil {

struct WalkInputs {
  std::shared_ptr<const Checkpoint> source;
  const ModelConfig& config;
  const QuantizeOptions& options;
  const std::vector<MoeLayer>& layers;  // to quantize, ascending
  const CalibrationSet& calibration;
  ThreadPool& pool;
  ShardWriter& writer;
  ProgressSink& progress;
};

// Quantizes inputs.layers into inputs.writer. kRtn only reads the experts; the other recipes run the model over the
// calibration rows, up to the last of the layers.
std::vector<LayerRecord> walk(const WalkInputs& inputs);

}  // namespace trefoil
