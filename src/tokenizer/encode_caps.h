// The two caps of the reference's encode(): where it cuts a text before it splits it. The parts are encoded on their
// own, so a cut changes ids and has to fall exactly where the reference's falls.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trefoil {

struct EncodeCaps {
  int64_t max_slice = 400'000;  // code points in a slice
  int64_t max_run = 25'000;     // code points in a run of one kind, all space or all not; counted anew in each slice
};

// Byte offsets, ascending, at which `text` (valid UTF-8) is cut; neither 0 nor text.size(). A slice ends after
// max_slice code points; a run over max_run is cut every max_run of its code points. Space here is what Python's
// str.isspace() says: White_Space and U+001C to U+001F.
std::vector<size_t> cap_cuts(std::string_view text, const EncodeCaps& caps);

}  // namespace trefoil
