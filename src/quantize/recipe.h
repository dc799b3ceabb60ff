// The recipe a user asked for: checked before any work, and written down as recipe.yaml.
#pragma once

#include <string>

#include "checkpoint/quantization_config.h"
#include "quantize/shard_plan.h"
#include "trefoil/quantize.h"

namespace trefoil {

// Error(kInvalidArgument) naming the option that is out of range, contradicts another, or would be ignored.
void check_options(const QuantizeOptions& options);

ExpertEncoding encoding_of(const QuantizeOptions& options);

// What config.json says about the output. The observer is the nearest name compressed-tensors knows:
// "memoryless_minmax" for absmax scales, "imatrix_mse" (squared error weighted by the inputs' second moments) for the
// trefoil recipe.
PackQuantizedSpec config_of(const QuantizeOptions& options);

// For kStock a recipe that llm-compressor reads; for the others the same kind of file with our own names.
std::string recipe_yaml(const QuantizeOptions& options);

}  // namespace trefoil
