// Compressed bytes for tests, by the libraries' one-call functions.
#pragma once

#include <string>
#include <string_view>

namespace trefoil::testing {

std::string gzip(std::string_view text);
std::string zstd(std::string_view text);

}  // namespace trefoil::testing
