// What a model card says about the calibration text, and about the experts it left thin.
#pragma once

#include <string>
#include <vector>

#include "quantize/calibration.h"
#include "quantize/report.h"

namespace trefoil {

// Files with their shares, sources, scripts, and what held-out texts have in common with them.
std::string calibration_markdown(const CalibrationSet& calibration);

// The documents of a file that gave ids, of all in it: "3 of 67".
std::string used_of_all(const CalibrationFile& file);

// The experts with the fewest tokens among those with fewer than `columns`; empty when there are none.
std::string thin_experts_markdown(const std::vector<LayerRecord>& layers, int64_t columns);

}  // namespace trefoil
