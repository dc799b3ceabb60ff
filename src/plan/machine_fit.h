// Whether the model, stored in one way, fits a machine. docs/cli.md, "plan".
#pragma once

#include "plan/machine.h"
#include "trefoil/plan.h"

namespace trefoil {

struct FitNeeds {
  uint64_t state_bytes = 0;       // of all sequences
  uint64_t routed_per_token = 0;  // bytes of experts a token touches, in this form
  double disk_gb_per_s = 0;       // assumed where experts come from disk
};

// Weights and sequence state against memory; no reserve for a runtime's own buffers, so the margin must hold those.
// A machine with GPUs must hold everything. Others may hold all but the routed experts and read those through a cache;
// how often it hits is unknown, so the estimate is for experts used evenly, which real text does not do.
FormFit fit(const PlannedForm& form, const Machine& machine, const FitNeeds& needs);

}  // namespace trefoil
