// What the report and a frozen set say about a calibration, as JSON. docs/quantization.md, "The report".
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "quantize/calibration.h"

namespace trefoil {

// Everything but the ids.
nlohmann::ordered_json calibration_json(const CalibrationSet& calibration);

// The other way round, what a frozen set keeps: files, sources and documents_used. Error(kCorrupt) for text that is no
// JSON or has another shape.
void read_calibration_json(std::string_view text, CalibrationSet* calibration);

}  // namespace trefoil
