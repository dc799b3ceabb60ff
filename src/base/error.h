// fail(): throw an Error with a formatted message. The type itself is public, trefoil/error.h.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "trefoil/error.h"

namespace trefoil {

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trefoil
