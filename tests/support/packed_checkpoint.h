// A pack-quantized checkpoint made without the quantizer: the bundled model's routed experts rounded to nearest and
// packed. For tests of whatever reads such checkpoints, so that they stand apart from the quantizer's own faults.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/quantization_config.h"

namespace trefoil::testing {

// Writes into `folder` (created): the source's shards with the six expert tensors replaced, in the source's order, and
// the weight_shape tensors after them; everything else copied; index, config.json, side files and SHA256SUMS.
void write_rtn_checkpoint(const std::filesystem::path& source, const std::filesystem::path& folder,
                          const PackQuantizedSpec& spec);

// Recomputes SHA256SUMS over every other file of the folder, in `sha256sum` format.
void write_sums(const std::filesystem::path& folder);

}  // namespace trefoil::testing
