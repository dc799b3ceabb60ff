// One routed expert: decode its MXFP4 weights, form Hessians from the tokens it sees, solve w1, w3 and w2.
// Single-threaded and pure, so that experts can be done side by side in any order.
// docs/quantization.md, "One expert".
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/model_config.h"
#include "quantize/encoded_linear.h"
#include "quantize/phase_times.h"
#include "quantize/report.h"
#include "quantize/row_file.h"
#include "quantize/token_lists.h"
#include "quantize/two_sided.h"

namespace trefoil {

// What the experts of one layer have in common.
struct LayerInputs {
  const Checkpoint* source = nullptr;
  const ModelConfig* config = nullptr;
  const QuantizeOptions* options = nullptr;
  int64_t layer = 0;
  const ActivationFile* latent = nullptr;           // [tokens, latent] of the quantized stream; null under kRtn
  const ActivationFile* original_latent = nullptr;  // of the original stream; null without a mismatch target
  std::span<const float> shared_hessian;  // [latent, latent] of all tokens; empty unless the recipe shrinks towards it
  const OutputMetric* w2_metric = nullptr;  // null: errors of w2's outputs all weigh alike
};

struct ExpertResult {
  std::array<EncodedLinear, 3> encoded;  // by ExpertPart
  std::array<MatrixRecord, 3> record;    // by ExpertPart
  ExpertTimes times;
};

// Error(kCorrupt) naming layer, expert and matrix when weights do not decode or inputs are not finite.
ExpertResult quantize_expert(const LayerInputs& inputs, int64_t expert, const RoutedExpert& stored,
                             const ExpertTokens& tokens);

}  // namespace trefoil
