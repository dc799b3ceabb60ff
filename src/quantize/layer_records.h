// The report's part on each layer, from what its units left in the ledger.
#pragma once

#include <cstdint>
#include <vector>

#include "quantize/ledger.h"
#include "quantize/report.h"
#include "quantize/source_experts.h"
#include "quantize/walk_steps.h"

namespace trefoil {

// Of the quantized layers, all of whose units are done. Error(kCorrupt) naming a unit without a record.
std::vector<LayerRecord> collect_layer_records(const Ledger& ledger, const std::vector<MoeLayer>& layers,
                                               const WorkGrain& grain, int64_t calibration_tokens);

}  // namespace trefoil
