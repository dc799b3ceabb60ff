// The solving of a layer's experts, as units: some experts each, side by side on the pool's threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quantize/walk.h"

namespace trefoil {

// Units over all experts of the layer. `inputs` and everything in it must outlive them; under kRtn inputs.latent is
// null. What a unit records: unit_payload.h.
std::vector<Unit> expert_units(const WalkInputs& walk, const LayerInputs& inputs, const MoeLayer& layer);

// H of all rows of `latent`, unweighted: what thin experts are shrunk towards. [width, width]. The result does not depend
// on the pool's size nor on how many of its parts, each three such matrices, are in memory at once.
std::vector<float> shared_hessian_of(const ActivationFile& latent, int64_t parts_at_once, ThreadPool& pool);

}  // namespace trefoil
