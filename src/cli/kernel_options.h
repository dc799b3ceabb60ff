// --kernels and --trunk, of every command that runs a model for speed.
#pragma once

#include <CLI/CLI.hpp>

#include "trefoil/numerics.h"

namespace trefoil::cli {

void add_kernel_options(CLI::App& command, KernelMode& kernels, TrunkForm& trunk);

}  // namespace trefoil::cli
