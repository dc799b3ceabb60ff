// Sizes and durations as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trefoil {

// "1500", "64GiB", "1.5TB", "512 MB", "0.5g" (k, m, g, t alone mean binary units) -> bytes.
// Throws Error(kInvalidArgument) naming the text when it is not a size or does not fit 63 bits.
uint64_t parse_size(std::string_view text);

// 1220517721088 -> "1.22 TB" (decimal units, three digits), used for disk and transfer.
std::string format_gb(uint64_t bytes);
// 6442450944 -> "6.00 GiB" (binary units), used for memory.
std::string format_gib(uint64_t bytes);
// "48 s", "12 min", "3 h 20 min", "2 d 4 h": the two largest units, rounded. 0 for what is negative or no number.
std::string format_duration(double seconds);

}  // namespace trefoil
