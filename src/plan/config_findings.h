// What quantization_config claims against what the tensors are. docs/formats.md, "quantization_config".
#pragma once

#include <vector>

#include "plan/model_source.h"

namespace trefoil {

// Claims that differ from the tensors are warnings: the tensors decide, and the release's own claim is wrong in places.
// Two configs at once, or packed tensors without any, are errors: loaders disagree about which one counts.
std::vector<Finding> check_quantization_claims(const ModelSource& source);

}  // namespace trefoil
