// The model that is synthesized: dimensions from the release or a config file, layers and experts as asked, and the
// config.json that says so.
#pragma once

#include <string>

#include "checkpoint/model_config.h"
#include "trefoil/synthesize.h"

namespace trefoil {

// Kimi-K3's own config, as released. Token ids are left out: they follow from the vocabulary.
ModelConfig kimi_k3_config();

// What `options` ask for. Error(kInvalidArgument) naming the option; errors of the config file as parse_model_config.
ModelConfig synthetic_config(const SynthesizeOptions& options);

// config.json as the release nests it (text_config), without vision_config; one quantization_config, for MXFP4 experts,
// whose ignore list is complete.
std::string write_synthetic_config(const ModelConfig& config);
std::string write_generation_config(const ModelConfig& config);

}  // namespace trefoil
