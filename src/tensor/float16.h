// IEEE binary16, for checkpoints whose plain weights or scales are F16. Stored as uint16_t everywhere.
#pragma once

#include <cstdint>

namespace trefoil {

// Exact for every input; a NaN stays a NaN.
float f16_to_f32(uint16_t bits);

// Nearest, ties to even; overflow becomes infinity; a NaN stays a (quiet) NaN; subnormals are kept.
uint16_t f32_to_f16(float value);

}  // namespace trefoil
