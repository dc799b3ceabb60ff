// Sizes as people write them.
#pragma once

#include <cstdint>
#include <string_view>

namespace trefoil {

// "1500", "64GiB", "1.5TB", "512 MB", "0.5g" (k, m, g, t alone mean binary units) -> bytes.
// Throws Error(kInvalidArgument) naming the text when it is not a size or does not fit 63 bits.
uint64_t parse_size(std::string_view text);

}  // namespace trefoil
