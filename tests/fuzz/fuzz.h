// What every fuzz target needs: the input as text, and the one exception that a hostile input may cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trefoil/error.h"

namespace trefoil::fuzz {

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs `body`; true when it returned, false when it refused the input with an Error. Anything else that is thrown
// (std::bad_alloc, std::out_of_range, ...) leaves here and is a finding.
template <typename Body>
bool accepts(Body body) {
  try {
    body();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace trefoil::fuzz
